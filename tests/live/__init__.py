"""The daemon beside a real vLLM."""
