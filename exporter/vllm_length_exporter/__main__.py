"""`python -m vllm_length_exporter` is the same program as the `vllm-length-exporter` command."""

from vllm_length_exporter.cli import main

if __name__ == "__main__":
    main()
