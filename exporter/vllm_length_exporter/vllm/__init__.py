"""What vLLM says, as data; no input or output."""
