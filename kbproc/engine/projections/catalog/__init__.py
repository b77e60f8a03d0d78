"""The catalog in SQLite: tables of what exists now, folded from the log, and their queries."""
