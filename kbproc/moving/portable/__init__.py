"""portable."""
