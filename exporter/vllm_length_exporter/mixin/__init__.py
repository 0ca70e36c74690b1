"""Alert rules, Alertmanager's configuration and the objects for Kubernetes, rendered from one file of thresholds."""
