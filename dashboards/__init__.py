"""The Grafana dashboards, as code: `python -m dashboards` writes `generated/*.json`."""
