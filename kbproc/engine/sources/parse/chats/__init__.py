"""Readers of session logs and chat exports: each turns one client's shape into conversations."""
