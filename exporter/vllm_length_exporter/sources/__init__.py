"""Input and output only; knows nothing of vLLM."""
