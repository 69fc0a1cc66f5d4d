"""Parts of a transformer: attention with a cache, norms, gated layers, drawing of tokens."""
