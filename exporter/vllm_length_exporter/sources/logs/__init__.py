"""Where a log's lines come from: one file a kind of source."""
