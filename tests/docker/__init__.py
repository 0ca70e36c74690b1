"""The container image, built step by step without a container engine."""
