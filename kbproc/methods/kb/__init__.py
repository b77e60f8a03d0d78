"""kb.*: knowledge bases."""
