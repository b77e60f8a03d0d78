"""A person at the terminal, whom a command asks before it acts."""

from __future__ import annotations

import sys


def is_there() -> bool:
    """Returns whether a person reads stderr and types into stdin."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def typed() -> str:
    """Waits for a line and returns it in small letters."""
    return sys.stdin.readline().strip().lower()


def agrees(line: str) -> bool:
    """Returns whether a typed line means yes."""
    return line in {"y", "yes"}
