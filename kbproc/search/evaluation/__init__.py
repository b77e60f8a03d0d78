"""How well a search finds what answers."""
