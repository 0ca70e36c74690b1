"""KV-cache and cost arithmetic from a model's config.json, beside the flow from sources to series.

`reading` -> `architecture` (layers) -> `pages` (bytes) -> `groups` -> `pool` (blocks, capacity, concurrency);
`budget` says how much memory there is; `answers` puts them together. Everything but `reading` and `command` is pure.
"""
