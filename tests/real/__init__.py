"""A real vLLM on the CPU, for tests."""
