"""One read-only SELECT over the catalog: sql.query."""

from __future__ import annotations
