"""index.*: the views."""
