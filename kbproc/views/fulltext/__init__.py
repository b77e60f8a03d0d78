"""fulltext."""
