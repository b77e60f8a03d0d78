"""kbproc: a knowledge base that agents run as a coprocess."""

from __future__ import annotations

PROTOCOL = "1.0"
SCHEMA_VERSION = 1

__version__ = "0.1.0"
