"""watch.*: watched folders."""
