"""The alert rules and what is delivered with them."""
