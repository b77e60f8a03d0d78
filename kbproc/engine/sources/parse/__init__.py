"""Parses documents into blocks, with one module for each format, in processes with limits."""
