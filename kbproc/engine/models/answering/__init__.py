"""Answerers behind one interface: they make an answer from a question and passages."""
