"""agent.*: agents."""
