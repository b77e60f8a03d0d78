"""The full-text index: BM25 over the chunks' words, by tantivy."""
