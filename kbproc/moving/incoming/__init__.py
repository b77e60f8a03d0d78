"""incoming."""
