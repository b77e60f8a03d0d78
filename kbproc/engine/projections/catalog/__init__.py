"""The DuckDB catalog: tables of what exists now, folded from the log, and their queries."""
