"""Names what a write touches, for its decision and its plan."""

from __future__ import annotations

from msgspec import Struct


class Target(Struct, kw_only=True, frozen=True, omit_defaults=True):
    """What a write touches, named for people; `revision` is what a plan is bound to."""

    kind: str
    id: int | str
    name: str
    revision: int | None = None
