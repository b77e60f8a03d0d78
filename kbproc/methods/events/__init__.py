"""events.*: reads, checks and undoes records of the log."""
