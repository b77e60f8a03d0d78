"""Named places where a test can end the process or make the disk fail."""

from __future__ import annotations

from collections.abc import Callable

# Name → the state when the place is reached.
FAILPOINTS = {
    "log.segment": "a new segment is about to be made",
    "log.write": "records are about to be written",
    "log.torn": "half of the records' bytes are written",
    "log.written": "records are written, not synced",
    "log.sync": "the log is about to be synced",
    "log.synced": "the log is synced, the views do not show it",
    "catalog.applied": "records are folded into the catalog's open transaction",
    "catalog.commit": "the catalog is about to commit",
    "catalog.committed": "the catalog has committed",
    "beside.sent": "another process has the new rows of the full-text index",
    "beside.committed": "another process has committed the full-text index",
    "fulltext.commit": "the full-text index is about to commit",
    "fulltext.committed": "the full-text index has committed, its position is not saved",
    "fulltext.saved": "the full-text index's position is saved",
    "fulltext.built": "a new full-text index is built, the old one in use",
    "catalog.built": "a new catalog is built, the old one in use",
    "views.swapped": "the views made afresh are in use, the old ones still on disk",
    "vectors.applied": "the vector view has followed",
    "vectors.save": "the vector view is about to be saved",
    "vectors.saved": "the vector view's new file is written, not renamed",
    "pack.write": "vectors are about to be written to the pack",
    "pack.written": "vectors are written to the pack",
    "pack.erase": "vectors are about to be erased from the pack",
    "blob.write": "a source is about to be written",
    "blob.written": "a large source is written under a temporary name",
    "blob.named": "large sources have their names, which are not synced",
    "blob.appended": "small sources are written to a pack, not synced",
    "blob.synced": "small sources are durable in a pack, which nobody looks for them in yet",
    "blob.rewritten": "a pack without erased sources is written, not renamed",
    "purge.recorded": "a purge is in the log, nothing is erased",
    "purge.sources": "the sources are gone, their vectors still there",
    "purge.vectors": "the vectors are gone, the log still holds the text",
    "purge.segment": "a segment without the erased text is written, not renamed",
    "purge.log": "the log is rewritten, the views still hold the text",
    "purge.views": "the views are made afresh, the purge is not marked as ended",
    "shared.shelved": "purged records lie on the shelf, the stream still holds the text",
    "shared.erased": "the stream holds nothing of a purge, which is not marked as ended",
    "model.embedded": "every chunk has its vector under the new model, the old one in use",
    "model.settings": "store.toml names the new model, the old one in use",
    "salvage.written": "a repaired log is written beside the damaged one",
    "salvage.decided": "a repair is decided, the damaged log still in place",
    "salvage.views": "a repair has removed the views",
    "salvage.aside": "the damaged log is set aside, the repaired one not in its place",
    "salvage.swapped": "the repaired log is in its place",
    "note.staged": "a note's new text is written under a hidden name",
    "note.exchanged": "a note's new text and the old have changed places",
    "note.placed": "a note's file is new, the log does not know it",
    "note.remove": "a note's file is about to be moved aside",
    "note.removed": "a note's file is moved aside, the log does not know it",
    "backup.copied": "a backup is copied under a temporary name",
    "upkeep.indexed": "a new index of a pack is written, not renamed",
    "upkeep.compacting": "a pack is about to be written without sources that no record names",
}

_armed: Callable[[str], None] | None = None


def arm(hook: Callable[[str], None] | None) -> None:
    """Calls `hook` with the name of each place reached from now on; None disarms."""
    global _armed  # noqa: PLW0603
    _armed = hook


def armed() -> bool:
    return _armed is not None


def reach(name: str) -> None:
    if _armed is not None:
        _armed(name)
