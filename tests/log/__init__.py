"""Tests of what is read from vLLM's log."""
