"""Texts that become documents: one, or many in one step.

Owns: what is said of a text in a request, reading it, the event that adds it; of many, which
were added and what kept each of the others.
Refuses to know: how a text is cut into chunks (content.py), and how a record is written.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from kbproc.base.errors import KbprocError
from kbproc.base.threads import map_ahead
from kbproc.base.values import AnyTitle, Metadata, Tags, check_metadata, clean_name, clean_tags
from kbproc.base.wording import plural
from kbproc.documents import lookup, revision
from kbproc.documents.content import ENDS_ALL, Intake, content_of_text
from kbproc.documents.revision import Content
from kbproc.documents.selection import AnyText, SourceId, ToKb
from kbproc.events.document import DocWritten
from kbproc.store.decision import Decision, Here
from kbproc.views.catalog.filters import DocumentFilter

MOST = 1000
_READERS = 8
_SETTLED_TOGETHER = 64  # sources: so long another writer may have to wait for the disk

TextType = Annotated[
    Literal["text", "markdown", "html", "code"], Meta(description="how the text is to be read")
]


class NewDocument(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A text and what is said of it. `kb`: that of the request if left out."""

    title: AnyTitle
    text: AnyText
    kb: ToKb | UnsetType = UNSET
    tags: Tags = []
    type: TextType = "text"
    source_id: SourceId | None = None
    metadata: Metadata = {}


class Readied(Struct, kw_only=True, frozen=True):
    """A text that was read. `at`: where it stands in the request, as a JSON path."""

    at: str
    kb: str
    content: Content
    tags: list[str]
    metadata: dict[str, Any]
    source_id: str | None


def read(intake: Intake, new: NewDocument, kb: str, *, at: str, keep: bool) -> Readied:
    """Takes its time: nothing for the lane. `keep` False: for a preview.

    `kb`: where it goes if it does not say so itself. Raises what keeps it from being added.
    """
    title = clean_name(new.title, field=f"{at}.title")
    tags = clean_tags(new.tags, field=f"{at}.tags")
    check_metadata(new.metadata, field=f"{at}.metadata")
    if new.source_id is not None:
        clean_name(new.source_id, field=f"{at}.source_id")
    return Readied(
        at=at,
        kb=kb if new.kb is UNSET else new.kb,
        content=content_of_text(intake, new.text, new.type, title, field=f"{at}.text", keep=keep),
        tags=tags,
        metadata=dict(new.metadata),
        source_id=new.source_id,
    )


class Additions:
    """Adds texts, one after the other, to what is there."""

    def __init__(self, here: Here, readied: Iterable[Readied]) -> None:
        """`readied`: all that may be added."""
        self._here = here
        self._kbs = here.kbs
        self._ids = revision.Ids(here)
        named = {(one.kb, one.source_id) for one in readied if one.source_id is not None}
        wanted = DocumentFilter(source_ids=[name for _, name in named])
        rows = here.queries.documents(wanted) if named else []
        self._taken = {(row.kb, row.source_id): (row.id, row.revision) for row in rows}

    def add(self, one: Readied) -> DocWritten:
        """Raises resource.not_found, resource.already_exists."""
        if one.kb not in self._kbs:
            raise lookup.unknown_kb(one.kb, self._kbs, field=f"{one.at}.kb")
        key = (one.kb, one.source_id)
        if one.source_id is not None and key in self._taken:
            raise _taken(one, *self._taken[key])
        event = revision.written(
            self._here,
            one.content,
            kb=one.kb,
            existing=None,
            ids=self._ids,
            tags=one.tags,
            metadata=one.metadata,
            source_id=one.source_id,
        )
        self._taken[key] = event.id, event.revision
        return event


def _taken(one: Readied, id: int, revision: int) -> KbprocError:
    return KbprocError(
        "resource.already_exists",
        f"{one.kb} has a document with source_id {one.source_id!r}: {id}.",
        field=f"{one.at}.source_id",
        hint=f"Change it with doc.update, id {id}.",
        detail={"id": id, "revision": revision},
    )


def in_words(event: DocWritten) -> str:
    """For a plan."""
    size = f"{plural(len(event.chunks), 'chunk')}, {plural(event.size_bytes, 'byte')}"
    return f"add “{event.title}” to {event.kb}: {size}"


# ---------------------------------------------------------------------------- many


class Added(Struct, kw_only=True, frozen=True):
    index: int
    id: int
    kb: str
    title: str
    chunk_count: int


class NotAdded(Struct, kw_only=True, frozen=True, omit_defaults=True):
    """What kept a text from being added, as an error would say it."""

    index: int
    type: str
    message: str
    field: str
    hint: str
    valid_values: list[Any] | UnsetType = UNSET
    detail: dict[str, Any] | UnsetType = UNSET


class ManyAdded(Struct, kw_only=True, frozen=True):
    """What became of `documents`. `index`: the place in the request, from 0."""

    added: int
    failed: int
    chunks: int
    documents: list[Added]
    failures: list[NotAdded]


def read_all(
    intake: Intake,
    new: Sequence[NewDocument],
    kb: str,
    *,
    at: str,
    keep: bool,
    check: Callable[[], None],
) -> list[Readied | NotAdded]:
    """Every text, or what keeps it from being added. `check` may raise between two texts.

    Raises what would befall the others, too.
    """

    def attempt(index: int) -> Readied | NotAdded:
        place = f"{at}[{index}]"
        try:
            return read(intake, new[index], kb, at=place, keep=keep)
        except KbprocError as error:
            if error.type in ENDS_ALL:
                raise
            return _failure(index, error, place)

    found: list[Readied | NotAdded] = []
    items = map_ahead(
        attempt, range(len(new)), threads=_READERS, name="create", most=2 * _SETTLED_TOGETHER
    )
    with contextlib.closing(items):
        for one in items:
            found.append(one)
            check()
            if keep and len(found) % _SETTLED_TOGETHER == 0:
                intake.blobs.settle(())
    return found


def _failure(index: int, error: KbprocError, at: str) -> NotAdded:
    return NotAdded(
        index=index,
        type=error.type,
        message=error.message,
        field=error.field or at,
        hint=error.hint,
        valid_values=UNSET if error.valid_values is None else error.valid_values,
        detail=error.detail or UNSET,
    )


def add_all(here: Here, found: Sequence[Readied | NotAdded]) -> Decision:
    """One record with all that can be added."""
    additions = Additions(here, [one for one in found if isinstance(one, Readied)])
    events: list[DocWritten] = []
    added: list[Added] = []
    failures: list[NotAdded] = []
    for index, one in enumerate(found):
        if isinstance(one, NotAdded):
            failures.append(one)
            continue
        try:
            event = additions.add(one)
        except KbprocError as error:
            failures.append(_failure(index, error, one.at))
        else:
            events.append(event)
            added.append(_added(index, event))
    made = ManyAdded(
        added=len(added),
        failed=len(failures),
        chunks=sum(one.chunk_count for one in added),
        documents=added,
        failures=failures,
    )
    return Decision(
        events=list(events),
        data=made,
        changes=_changes(made, events),
        counts=_counts(made, events),
        partial=_what_failed(made),
    )


def _added(index: int, event: DocWritten) -> Added:
    return Added(
        index=index,
        id=event.id,
        kb=event.kb,
        title=event.title,
        chunk_count=len(event.chunks),
    )


def _changes(made: ManyAdded, events: Sequence[DocWritten]) -> list[str]:
    """What fails first: a plan is cut, and the rest is as was asked for."""
    failing = [f"failed: {_where(one)}{one.message}" for one in made.failures]
    return [f"{made.added} added, {made.failed} failed", *failing, *map(in_words, events)]


def _counts(made: ManyAdded, events: Sequence[DocWritten]) -> dict[str, int]:
    size = sum(event.size_bytes for event in events)
    return {"added": made.added, "failed": made.failed, "chunks": made.chunks, "bytes": size}


def _what_failed(made: ManyAdded) -> str | None:
    """None if all were added."""
    if not made.failures:
        return None
    total, first = plural(made.added + made.failed, "document"), made.failures[0]
    return f"{made.failed} of {total} could not be added. First: {_where(first)}{first.message}"


def _where(one: NotAdded) -> str:
    """Nothing where the message says it."""
    return "" if one.field in one.message else f"{one.field}: "
