"""Encodes an answer's stream for other protocols."""
