"""What the tests run beside the project: where it comes from and where it lies."""
