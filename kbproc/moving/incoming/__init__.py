"""What an import brings in."""
