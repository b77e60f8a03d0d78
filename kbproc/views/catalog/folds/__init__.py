"""How each event changes the catalog's tables, a file a noun."""
