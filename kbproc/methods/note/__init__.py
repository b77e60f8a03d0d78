"""note.*: notes of agents."""
