"""The rules behind the findings, one file a subject."""
