"""Runs `kbproc eval`: measures the quality of searches in a collection of documents."""
