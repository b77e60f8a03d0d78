"""The vector index: pack, flat tail and graph."""
