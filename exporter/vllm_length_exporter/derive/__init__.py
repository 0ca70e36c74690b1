"""Pure functions from ServerState to values with evidence."""
