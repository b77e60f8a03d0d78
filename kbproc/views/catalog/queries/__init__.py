"""What is asked of the catalog in SQL, a file a noun."""
