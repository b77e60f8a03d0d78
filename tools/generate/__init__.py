"""Generates what the repository derives from the declared methods: schemas, clients, pages, maps.

`python -m tools.generate` writes the files; with `--check` it only lists those out of date.
"""
