"""KV-cache and cost arithmetic from a model's config.json."""
