"""Starts the server for a desktop program, in the environment that uv makes of pyproject.toml."""

import sys

from kbproc.__main__ import main

sys.argv = ["kbproc", "mcp"]
main()
