"""session.*: conversations, their questions and their answers."""
