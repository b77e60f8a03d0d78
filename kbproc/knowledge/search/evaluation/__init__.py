"""Measures of how well searches find the documents that answer a question."""
