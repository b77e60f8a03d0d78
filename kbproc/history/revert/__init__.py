"""Undoing records of the log."""
