"""Prints the results of commands, in formats for programs and as text for people."""
