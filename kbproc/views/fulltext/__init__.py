"""The full-text index, kept by tantivy."""
