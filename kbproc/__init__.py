"""kbproc: a knowledge base that agents run as a coprocess.

The folders show the layers. A package imports only packages that stand before it here; a dot is
the layer's own folder.

    base:      . text settings
    engine:    log events sources models projections store embedding cluster
    knowledge: documents watching agents search history transfer sessions cluster app
    methods:   calls .
    client:    .
    contract:  .
    surfaces:  wire sharing mcp hooks setup start page shell
"""

from __future__ import annotations

PROTOCOL = "1.0"
SCHEMA_VERSION = 1

__version__ = "0.1.0"
