"""What the exporter costs, measured beside a real Prometheus on the same page in the same run."""
