"""knowledge.*: knowledge entries."""
