"""What was, and bringing it back: doc.history, doc.restore, events.revert."""

from __future__ import annotations
