"""Asks hooks for what a prompt names, and counts the answers with this and nothing else."""
