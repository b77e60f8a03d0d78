"""sql.*: SQL over the catalog."""
