"""Values to Prometheus families, one file a subject."""
