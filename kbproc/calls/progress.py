"""How far a request is.

Owns: the fields of a progress event.
Refuses to know: which of them are left out on their way (wire/stream.py).
"""

from __future__ import annotations

from typing import Any


def progress(
    stage: str, current: int, total: int | None, message: str, *, last: bool | None = None
) -> dict[str, Any]:
    """`last`: it is never left out; so is the one that reaches its total."""
    return {
        "stage": stage,
        "current": current,
        "total": total,
        "percent": round(100 * current / total, 1) if total else None,
        "message": message,
        "last": current == total if last is None else last,
    }
