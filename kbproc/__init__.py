"""kbproc: a knowledge base that agents run as a coprocess.

The house: a room imports only rooms that stand above it here.

Ground:           base text
Bytes and truth:  settings log events sources models
Views:            views
The writer:       store embedding
Ideas:            documents agents search history moving sessions
The opened house: library
Methods:          calls methods
Surfaces:         wire sharing mcp repo client shell
"""

from __future__ import annotations

PROTOCOL = "1.0"
SCHEMA_VERSION = 1

__version__ = "0.1.0"
