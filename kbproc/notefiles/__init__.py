"""notefiles."""
