"""events.*: the log as it is read, checked and undone from outside."""
