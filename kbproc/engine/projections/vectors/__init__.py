"""The vector index: the nearest chunks by their vectors' cosines, from a flat tail and a graph."""
