"""Adds texts as documents: one, or many in one step.

A text comes with its title, tags and metadata. Of many texts, the result lists those that were
added, and for each of the others the error that prevented it.
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
from kbproc.engine.events.document import DocWritten
from kbproc.engine.events.origin import Origin
from kbproc.engine.projections.catalog.filters import DocumentFilter
from kbproc.engine.store.decision import Decision, DecisionState, PartialSuccess
from kbproc.engine.store.plan import MOST_SUMMARIES
from kbproc.knowledge.documents import lookup, revision
from kbproc.knowledge.documents.content import ENDS_ALL, Intake, content_of_text
from kbproc.knowledge.documents.revision import Content
from kbproc.knowledge.documents.selection import AnyText, SourceId, ToKb
from kbproc.knowledge.documents.trust import StatedOrigin, check_stated

MOST = 1000
_READERS = 8

TextType = Annotated[
    Literal["text", "markdown", "html", "code"], Meta(description="how the text is to be read")
]


class NewDocument(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A text with its title, tags and metadata. `kb`: that of the request if left out."""

    title: AnyTitle
    text: AnyText
    kb: ToKb | UnsetType = UNSET
    tags: Tags = []
    type: TextType = "text"
    source_id: SourceId | None = None
    metadata: Metadata = {}
    origin: StatedOrigin | UnsetType = UNSET


class ParsedText(Struct, kw_only=True, frozen=True):
    """A text, parsed and ready to be added. `at`: its place in the request, as a JSON path."""

    at: str
    kb: str
    content: Content
    tags: list[str]
    metadata: dict[str, Any]
    source_id: str | None
    origin: Origin | None = None


def read(intake: Intake, new: NewDocument, kb: str, *, at: str, keep: bool) -> ParsedText:
    """Checks and parses the text. That takes time, so it is not to be called in the lane.

    `kb`: the knowledge base of a text that names none. `keep` False: a preview, which stores
    nothing. Raises input.invalid_params, and what `content_of_text` raises.
    """
    title = clean_name(new.title, field=f"{at}.title")
    tags = clean_tags(new.tags, field=f"{at}.tags")
    check_metadata(new.metadata, field=f"{at}.metadata")
    if new.source_id is not None:
        clean_name(new.source_id, field=f"{at}.source_id")
    return ParsedText(
        at=at,
        kb=kb if new.kb is UNSET else new.kb,
        content=content_of_text(intake, new.text, new.type, title, field=f"{at}.text", keep=keep),
        tags=tags,
        metadata=dict(new.metadata),
        source_id=new.source_id,
        origin=None if new.origin is UNSET else new.origin,
    )


class Additions:
    """Adds texts, one after the other, to the documents that exist."""

    def __init__(self, here: DecisionState, texts: Iterable[ParsedText]) -> None:
        """Looks up which source ids of `texts` are in use. `texts`: all that may be added."""
        self._here = here
        self._kbs = here.kbs
        self._ids = revision.Ids(here)
        source_keys = {(text.kb, text.source_id) for text in texts if text.source_id is not None}
        source_filter = DocumentFilter(source_ids=[name for _, name in source_keys])
        rows = here.queries.documents(source_filter) if source_keys else []
        self._existing = {(row.kb, row.source_id): (row.id, row.revision) for row in rows}

    def add(self, text: ParsedText) -> DocWritten:
        """Returns the event that adds the text.

        Raises resource.not_found, resource.already_exists, input.invalid_params.
        """
        check_stated(self._here.origin, text.origin, field=f"{text.at}.origin")
        if text.kb not in self._kbs:
            raise lookup.unknown_kb(text.kb, self._kbs, field=f"{text.at}.kb")
        key = (text.kb, text.source_id)
        if text.source_id is not None and key in self._existing:
            raise _already_exists(text, *self._existing[key])
        event = revision.document_written(
            self._here,
            text.content,
            kb=text.kb,
            existing=None,
            ids=self._ids,
            tags=text.tags,
            metadata=text.metadata,
            source_id=text.source_id,
            origin=text.origin,
        )
        self._existing[key] = event.id, event.revision
        return event


def _already_exists(text: ParsedText, id: int, revision: int) -> KbprocError:
    return KbprocError(
        "resource.already_exists",
        f"{text.kb} has a document with source_id {text.source_id!r}: {id}.",
        field=f"{text.at}.source_id",
        hint=f"Change it with doc.update, id {id}.",
        detail={"id": id, "revision": revision},
    )


def in_words(event: DocWritten) -> str:
    """Returns the addition as a line of a plan."""
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
    """The error that kept a text from being added."""

    index: int
    type: str
    message: str
    field: str
    hint: str
    valid_values: list[Any] | UnsetType = UNSET
    detail: dict[str, Any] | UnsetType = UNSET


class ManyAdded(Struct, kw_only=True, frozen=True):
    """The outcome for each of `documents`. `index`: the place in the request, from 0."""

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
) -> list[ParsedText | NotAdded]:
    """Returns each text parsed, or the error that keeps it from being added.

    `check` may raise between two texts. Raises the errors that would meet every text: store.io,
    operation.cancelled.
    """

    def attempt(index: int) -> ParsedText | NotAdded:
        place = f"{at}[{index}]"
        try:
            return read(intake, new[index], kb, at=place, keep=keep)
        except KbprocError as error:
            if error.type in ENDS_ALL:
                raise
            return _failure(index, error, place)

    is_read_here = [intake.reads_here(text.text, text.type, text.title) for text in new]
    others = [index for index, here in enumerate(is_read_here) if not here]
    texts: list[ParsedText | NotAdded] = []
    parsed = map_ahead(attempt, others, threads=_READERS, name="create")
    with contextlib.closing(parsed):
        for index, here in enumerate(is_read_here):
            texts.append(attempt(index) if here else next(parsed))
            check()
    return texts


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


def add_all(here: DecisionState, texts: Sequence[ParsedText | NotAdded]) -> Decision:
    """Returns the decision that adds, in one record, all texts that can be added."""
    additions = Additions(here, [text for text in texts if isinstance(text, ParsedText)])
    events: list[DocWritten] = []
    added: list[Added] = []
    failures: list[NotAdded] = []
    for index, text in enumerate(texts):
        if isinstance(text, NotAdded):
            failures.append(text)
            continue
        try:
            event = additions.add(text)
        except KbprocError as error:
            failures.append(_failure(index, error, text.at))
        else:
            events.append(event)
            added.append(_added(index, event))
    result = ManyAdded(
        added=len(added),
        failed=len(failures),
        chunks=sum(item.chunk_count for item in added),
        documents=added,
        failures=failures,
    )
    return Decision(
        events=list(events),
        data=result,
        changes=_changes(result, events),
        counts=_counts(result, events),
        partial=_failure_summary(result),
    )


def _added(index: int, event: DocWritten) -> Added:
    return Added(
        index=index,
        id=event.id,
        kb=event.kb,
        title=event.title,
        chunk_count=len(event.chunks),
    )


def _changes(result: ManyAdded, events: Sequence[DocWritten]) -> list[str]:
    """Returns the lines of a plan; failures come first, because a long plan is cut at its end."""
    failing = [f"failed: {_field_prefix(failure)}{failure.message}" for failure in result.failures]
    lines = map(in_words, events[:MOST_SUMMARIES])
    return [f"{result.added} added, {result.failed} failed", *failing, *lines]


def _counts(result: ManyAdded, events: Sequence[DocWritten]) -> dict[str, int]:
    size = sum(event.size_bytes for event in events)
    return {"added": result.added, "failed": result.failed, "chunks": result.chunks, "bytes": size}


def _failure_summary(result: ManyAdded) -> PartialSuccess | None:
    """Returns how many texts failed, and the first; None if all were added."""
    if not result.failures:
        return None
    total, first = plural(result.added + result.failed, "document"), result.failures[0]
    return PartialSuccess(
        message=f"{result.failed} of {total} could not be added.",
        first=f"{_field_prefix(first)}{first.message}",
    )


def _field_prefix(failure: NotAdded) -> str:
    """Returns the field with a colon; "" where the message names the field itself."""
    return "" if failure.field in failure.message else f"{failure.field}: "
