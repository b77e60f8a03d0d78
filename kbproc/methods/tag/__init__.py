"""tag.*: tags."""
