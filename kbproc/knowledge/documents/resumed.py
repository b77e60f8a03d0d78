"""Finds what the log of a resumed session repeats of other logs, so that it is indexed once.

Some clients begin a new file where a session is resumed, and copy the earlier messages with their
times into it. A message belongs to the log whose document is the oldest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from kbproc.base.errors import KbprocError
from kbproc.base.paths import WITHIN
from kbproc.engine.projections.catalog.rows import DocumentRow
from kbproc.engine.sources.blobs import Blobs
from kbproc.knowledge.documents.moves import is_gone

RESUMED_FROM = "resumed_from"  # the field of metadata with the path of the log before
_FEWEST = 2  # because two sessions may begin with the same words in the same second
_NEW = 1 << 62  # in place of the id of a document that is not written yet


class ResumedSessions:
    """The messages of a knowledge base's session logs, and of those that an ingest has read.

    A message is named by its client, its time and a digest: see message_keys in the parser.
    """

    def __init__(self, blobs: Blobs, documents: Mapping[str, DocumentRow]) -> None:
        self._blobs = blobs
        self._documents = documents
        self._stored: dict[str, list[str]] | None = None
        self._read: dict[str, list[str]] = {}  # client and time of the first message → paths
        self._messages: dict[str, frozenset[str]] = {}  # path → keys
        self._parts: dict[str, list[DocumentRow]] = {}

    def copies(self, path: str, messages: Sequence[str]) -> tuple[list[str], str]:
        """Returns the keys that older logs hold, and the path of the last of these logs.

        A log that was itself resumed holds only what was new, and names the one before it.
        """
        copied_keys: set[str] = set()
        last = ""
        looked_at = {path}
        for key in messages:
            if key in copied_keys:
                continue
            others = [each for each in self._begun_at(_begin(key)) if each not in looked_at]
            looked_at.update(others)
            for other in others:
                keys = self._keys(other) if self._is_older(other, path) else frozenset()
                if key in keys:
                    copied_keys |= keys
                    last = other
            if key not in copied_keys:
                break
        copied = [key for key in messages if key in copied_keys]
        return (copied, last) if len(copied) >= _FEWEST else ([], "")

    def note(self, path: str, messages: Sequence[str]) -> None:
        """Notes the messages of a log that this ingest has read, without those of older logs."""
        if messages:
            self._read.setdefault(_begin(messages[0]), []).append(path)
            self._messages[path] = frozenset(messages)

    def _begun_at(self, begin: str) -> list[str]:
        if self._stored is None:
            self._stored = self._by_beginning()
        return list(dict.fromkeys([*self._stored.get(begin, []), *self._read.get(begin, [])]))

    def _by_beginning(self) -> dict[str, list[str]]:
        """Returns client and time of the first message → paths of the logs that are stored."""
        paths: dict[str, list[str]] = {}
        for path, row in self._documents.items():
            if row.type != "conversation":
                continue
            holder, within, _ = path.partition(WITHIN)
            self._parts.setdefault(holder, []).append(row)
            if not within:
                facts = msgspec.json.decode(row.metadata)
                begin = f"{facts.get('client')} {facts.get('started')}"
                paths.setdefault(begin, []).append(path)
        return paths

    def _is_older(self, other: str, path: str) -> bool:
        """Returns True if the other log has the older document, and is still there."""
        ids = [row.id if (row := self._documents.get(each)) else _NEW for each in (other, path)]
        return (ids[0] < ids[1] or ids == [_NEW, _NEW]) and not is_gone(other)

    def _keys(self, path: str) -> frozenset[str]:
        if path not in self._messages:
            self._messages[path] = frozenset(self._stored_keys(self._parts.get(path, [])))
        return self._messages[path]

    def _stored_keys(self, rows: Iterable[DocumentRow]) -> Iterator[str]:
        from kbproc.engine.sources.parse.conversation import message_keys_of

        for row in rows:
            try:
                yield from message_keys_of(self._blobs.get(row.sha256))
            except KbprocError as error:
                if error.type not in ("store.corrupt", "resource.not_found"):
                    raise


def has_lost_beginning(row: DocumentRow) -> bool:
    """Returns True if the log from which the document's session was resumed is gone."""
    if RESUMED_FROM not in row.metadata:
        return False
    log = msgspec.json.decode(row.metadata).get(RESUMED_FROM)
    return isinstance(log, str) and is_gone(log)


def _begin(key: str) -> str:
    """Returns the client and the time of a message."""
    return key.rpartition(" ")[0]
