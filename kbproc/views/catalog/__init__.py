"""The DuckDB catalog: what exists now, folded from the log, and what is asked of it."""
