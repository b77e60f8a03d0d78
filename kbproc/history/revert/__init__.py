"""revert."""
