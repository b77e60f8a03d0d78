"""Reads the names of models on the hub: OWNER/NAME, maybe with @REVISION."""

from __future__ import annotations

from msgspec import Struct

from kbproc.base.patterns import lazy

_PART = r"[A-Za-z0-9_][A-Za-z0-9._-]{0,95}"
_NAME = lazy(rf"(?P<repository>{_PART}/{_PART})(?:@(?P<revision>[A-Za-z0-9._/-]{{1,255}}))?")
_COMMIT = lazy(r"[0-9a-f]{40}")
_SHORT_COMMIT = lazy(r"[0-9a-f]{7,40}")


class HubName(Struct, frozen=True):
    """A model on the hub. `revision`: a branch, a tag or a commit; None: the one that is pinned."""

    repository: str
    revision: str | None = None

    def __str__(self) -> str:
        return self.repository + (f"@{self.revision}" if self.revision else "")


def hub_name(text: str) -> HubName | None:
    """Returns the model on the hub that a text names; None for any other text, such as a path."""
    match = _NAME.fullmatch(text)
    if match is None or ".." in text or "--" in match["repository"]:
        return None
    return HubName(match["repository"], match["revision"])


def is_commit(revision: str) -> bool:
    return _COMMIT.fullmatch(revision) is not None


def begins_commit(revision: str) -> bool:
    """Returns whether a revision may be the beginning of a commit's hash."""
    return _SHORT_COMMIT.fullmatch(revision) is not None
