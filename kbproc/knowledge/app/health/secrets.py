"""Looks for secrets in the texts that a store shows at present.

A process of its own meets the texts, because no text may hold up the owner: the search ends when
its request is cancelled or late, and a text that takes too long is named and passed over.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence

from kbproc.base.errors import Finding, KbprocError
from kbproc.base.frames import frame
from kbproc.base.sandbox import Child
from kbproc.base.values import NOT_READABLE, packed_decoder
from kbproc.base.wording import few, plural
from kbproc.engine.events.document import whole_text
from kbproc.engine.projections.catalog.filters import DocumentFilter
from kbproc.engine.sources.parse.unread import in_words
from kbproc.engine.store.store import Store
from kbproc.knowledge.app.health.worker import FoundSecrets, SearchedText

_MOST_NAMED = 100  # documents in the command that purges them
_MODULE = "kbproc.knowledge.app.health.worker"
# A message holds texts of so many characters, or of so many documents.
_BATCH_CHARS, _BATCH_DOCUMENTS = 1 << 18, 200
_SECONDS = 30.0  # for texts of at most CHARS_IN_TIME; longer ones may take longer in proportion
_CHARS_IN_TIME = 3_000_000
_LOOK_SECONDS = 0.1
_decode_answers = packed_decoder(list[FoundSecrets]).decode


def secrets(store: Store, check: Callable[[], object]) -> Finding:
    """Returns the documents, entries and notes that hold secrets, and the command that plans their
    purge.

    `check` is called again and again; it may raise.
    """
    holders: dict[int, str] = {}
    unsearched: list[str] = []
    with _Search(check) as search:
        for batch in _batches(store):
            for text, answer in zip(batch, search.answers(batch), strict=True):
                if answer is None:
                    unsearched.append(f"document {text.id}")
                elif answer.kinds:
                    what = in_words(answer.kinds).replace("redacted ", "")
                    holders[text.id] = f"{text.id} “{answer.title}” ({what})"
    return _finding(holders, unsearched)


def _finding(holders: dict[int, str], unsearched: list[str]) -> Finding:
    why = "; not searched, because that took too long or too much memory: "
    omitted = why + few(unsearched) if unsearched else ""
    if not holders:
        message = f"no text holds a secret of a known shape{omitted}"
        if unsearched:
            return Finding("secrets", "warn", message, "Look at these texts yourself.")
        return Finding("secrets", "pass", message)
    ids = ",".join(map(str, [*holders][:_MOST_NAMED]))
    rest = " These are the first hundred: look again after that." * (len(holders) > _MOST_NAMED)
    verb = "holds" if len(holders) == 1 else "hold"
    return Finding(
        "secrets",
        "warn",
        f"{plural(len(holders), 'document')} {verb} secrets: {few(list(holders.values()))}"
        f"{omitted}",
        f"Revoke the secrets first. kbproc store purge --document-ids {ids} --dry-run shows what "
        f"a purge erases, and without --dry-run it asks you and erases it.{rest}",
    )


def _batches(store: Store) -> Iterator[list[SearchedText]]:
    """Yields the texts of all documents, some together.

    A batch is read at one moment, and none is held while its texts are searched.
    """
    last = 0
    while batch := _batch_after(store, last):
        yield batch
        last = batch[-1].id


def _batch_after(store: Store, last: int) -> list[SearchedText]:
    """Returns the texts of the next documents by id, from the one after `last`."""
    batch: list[SearchedText] = []
    with store.reading() as snapshot:
        for row in snapshot.queries.documents(DocumentFilter(), after=last, limit=_BATCH_DOCUMENTS):
            text = whole_text(chunk.content for chunk in snapshot.queries.chunks_of(row.id))
            batch.append(SearchedText(row.id, row.title, f"{row.metadata}\n{text}"))
            if _size(batch) >= _BATCH_CHARS:
                break
    return batch


def _size(texts: Sequence[SearchedText]) -> int:
    return sum(len(text.text) for text in texts)


class _Search:
    """The process that searches texts; it is started when it is first needed, or has ended."""

    def __init__(self, check: Callable[[], object]) -> None:
        self._check = check
        self._child: Child | None = None

    def __enter__(self) -> _Search:
        return self

    def __exit__(self, *error: object) -> None:
        self._end()

    def _end(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.end()

    def answers(self, texts: Sequence[SearchedText]) -> list[FoundSecrets | None]:
        """Returns the secrets of each text; None for a text that takes too long or too much memory.

        Raises what `check` raises, and operation.failed if no process can be started.
        """
        child = self._started()
        try:
            return [*self._exchange(child, texts)]
        except (TimeoutError, EOFError, OSError, *NOT_READABLE):
            self._end()
        if len(texts) == 1:
            return [None]
        return [answer for text in texts for answer in self.answers([text])]

    def _started(self) -> Child:
        if self._child is None:
            environment = {"MALLOC_ARENA_MAX": "1"}
            try:
                self._child = Child(_MODULE, str(os.getpid()), environment=environment)
            except OSError as error:
                raise KbprocError(
                    "operation.failed",
                    f"No process could be started to look for secrets: {error.strerror}.",
                    hint="Ask again when the machine has more memory and fewer processes.",
                ) from error
        return self._child

    def _exchange(self, child: Child, texts: Sequence[SearchedText]) -> list[FoundSecrets]:
        deadline = time.monotonic() + _SECONDS * max(1.0, _size(texts) / _CHARS_IN_TIME)

        def patience() -> float:
            self._check()
            remaining_s = deadline - time.monotonic()
            if remaining_s <= 0:
                raise TimeoutError
            return min(_LOOK_SECONDS, remaining_s)

        child.send(frame(texts), patience)
        answers = _decode_answers(child.receive_frame(patience))
        if len(answers) != len(texts):
            raise EOFError
        return answers
