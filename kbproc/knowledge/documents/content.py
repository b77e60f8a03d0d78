"""Makes a document's content from the bytes of its source.

The source is parsed in the pool of parsers and stored. Of the tags and metadata that it states
itself, the usable ones are taken. The module also returns the whole text of a document, and
parses the source of a document again.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from kbproc.base.errors import KbprocError
from kbproc.base.paths import WITHIN
from kbproc.base.settings.purged_files import PurgedFiles
from kbproc.base.values import MOST_ALIASES, MOST_TAGS, TAG_CHARS, check_metadata, clean_tags
from kbproc.engine.embedding.parsers import Parsers
from kbproc.engine.events.document import (
    ChunkDeleted,
    DocWritten,
    SourceFacts,
    parsed_facts_of,
    possible_sources,
    whole_text,
)
from kbproc.engine.projections.catalog.queries import Queries
from kbproc.engine.projections.catalog.rows import DocumentRow
from kbproc.engine.sources.blobs import Blobs, digest, erased_error
from kbproc.engine.sources.parse.formats import (
    HOLDERS,
    NO_OPTIONS,
    OCR_LANGUAGES,
    ReadOptions,
    has_reader,
    is_text,
    source_text,
)
from kbproc.engine.store.decision import Decision, DecisionState
from kbproc.engine.store.pipeline import LongWrite
from kbproc.engine.store.state import SeenStore
from kbproc.knowledge.documents.moves import is_held
from kbproc.knowledge.documents.revision import Content, Ids, Labels, document_written, labels_of

if TYPE_CHECKING:
    from kbproc.engine.sources.parse.progress import Progress
    from kbproc.engine.sources.parse.worker import ParsedChunks, ParsedPart


class Intake:
    """The processes that parse sources, and the place where their bytes are stored.

    `redact`: no source is stored with a secret in it. `purged_files` are not read again.
    """

    def __init__(
        self, parsers: Parsers, blobs: Blobs, purged_files: PurgedFiles, *, redact: bool = False
    ) -> None:
        self.parsers = parsers
        self.blobs = blobs
        self.purged_files = purged_files
        self.redact = redact

    def options(self, options: ReadOptions) -> ReadOptions:
        """Returns the options with which a source is read into this store."""
        return msgspec.structs.replace(options, redact=True) if self.redact else options

    def reads_here(self, text: str, type: str, title: str) -> bool:
        """Returns True for a text that is cut into chunks in this process, within milliseconds."""
        if type != "text" or len(text) > SHORT_BYTES or self.redact:
            return False
        is_short = text.isascii() or len(text.encode("utf-8", "replace")) <= SHORT_BYTES
        is_plain = not ("\0" in text or "\x1b" in text or has_reader(text, title))
        return is_short and is_plain


class RawSource(NamedTuple):
    """A source that is not parsed yet. `name`: the file's name; the title if there is no file.

    `note`: a sentence on how the name and the bytes differ. `stamp`: the file's size and time.
    """

    data: bytes
    type: str
    name: str
    options: ReadOptions = NO_OPTIONS
    note: str | None = None
    stamp: str = ""


class NothingToRead(KbprocError):
    """A source without a text that any reader would see: blank, or only a comment."""


T = TypeVar("T")

# Errors that end a whole batch; every other error is one source's failure.
ENDS_ALL = frozenset({"store.io", "operation.cancelled"})
_GROUP_BYTES = 1 << 20  # sent to a parser at once; a file may have grown since it was listed
LARGE_BYTES = 64 << 10  # parsing so much may take seconds
SHORT_BYTES = 4 << 10  # so much UTF-8 is always cut into chunks within milliseconds
PARSED_AS = {"knowledge": "markdown", "note": "markdown"}
_NO_TEXT = {
    "pdf": "A scanned document needs text recognition first.",
    "html": "The page may be made by scripts: save it as shown by a browser, and add that.",
}


_EMPTY_WITHOUT_TEXT = frozenset({"text", "markdown", "code", "table", "conversation"})


def content_of_text(
    intake: Intake,
    text: str,
    type: str,
    title: str,
    *,
    field: str = "$.params.text",
    keep: bool = True,
) -> Content:
    """Returns the content of a text that came with a request.

    Raises input.invalid_params for a text that can't be stored or has nothing to read.
    """
    try:
        data = text.encode()
    except UnicodeEncodeError:
        raise KbprocError(
            "input.invalid_params", f"{field} holds half a surrogate pair.", field=field
        ) from None
    if not text.strip():
        raise KbprocError("input.invalid_params", f"{field} is blank.", field=field)
    if not intake.reads_here(text, type, title):
        return read_content(intake, data, type, title, title=title, keep=keep)
    # Not by a parser, because its answer takes longer.
    parsed = _with_parsers(lambda: intake.parsers.get().read_here(text, title, title))
    return _content(intake, RawSource(data, type, title), parsed, title=title, keep=keep)


def read_content(
    intake: Intake,
    data: bytes,
    doc_type: str,
    name: str,
    *,
    title: str | None = None,
    keep: bool = True,
    tell: Callable[[Progress], None] | None = None,
    options: ReadOptions = NO_OPTIONS,
    stamp: str = "",
    redacts: bool = True,
) -> Content:
    """Parses in a separate process; the bytes are a new source, but a preview does not `keep` them.

    `tell` gets the parser's progress. `redacts`: False for a text whose file stays beside the store
    and must be equal to it. Raises what the parser raises, and operation.failed for a source
    without any text.
    """

    options = intake.options(options) if redacts else options

    def parse() -> ParsedChunks:
        result = attempt(options)
        has_failed = isinstance(result, KbprocError) and result.type == "operation.failed"
        if has_failed and doc_type in HOLDERS and options.parts:
            # A file within the source may have ended the parser; the source is read without them.
            result = attempt(msgspec.structs.replace(options, parts=False))
        if isinstance(result, KbprocError):
            raise result
        return result

    def attempt(options: ReadOptions) -> ParsedChunks | KbprocError:
        from kbproc.engine.sources.parse.worker import ParserJob

        job = ParserJob(
            data=data,
            type=doc_type,
            name=name,
            title=title,
            reports=tell is not None,
            options=options,
        )
        return intake.parsers.parse([job], tell)[0]

    source = RawSource(data, doc_type, name, options, stamp=stamp)
    return _content(intake, source, _with_parsers(parse), title=title, keep=keep)


def read_some(
    intake: Intake, sources: Sequence[RawSource], under_way: UnderWay, *, keep: bool
) -> list[Content | KbprocError]:
    """Returns the content or the error of each source. Short sources are parsed together.

    `under_way` gets the parser's progress with a large source. Raises the errors that would meet
    every source: store.io, operation.cancelled.
    """
    from kbproc.engine.sources.parse.worker import ParserJob

    def attempt(
        source: RawSource, parsed: ParsedChunks | KbprocError | None
    ) -> Content | KbprocError:
        try:
            if isinstance(parsed, KbprocError):
                raise parsed
            if parsed is None:
                read = partial(
                    read_content,
                    *(intake, source.data, source.type, source.name),
                    keep=keep,
                    options=source.options,
                    stamp=source.stamp,
                )
                if len(source.data) < LARGE_BYTES:
                    return read()
                with under_way.reading(source.name) as tell:
                    return read(tell=tell)
            return _content(intake, source, parsed, title=None, keep=keep)
        except KbprocError as error:
            if error.type in ENDS_ALL:
                raise
            return error

    if len(sources) < 2 or sum(len(source.data) for source in sources) > _GROUP_BYTES:
        return [attempt(source, None) for source in sources]
    jobs = [
        ParserJob(
            data=source.data,
            type=source.type,
            name=source.name,
            title=None,
            options=intake.options(source.options),
        )
        for source in sources
    ]
    results = _with_parsers(lambda: intake.parsers.parse(jobs))
    return [attempt(source, parsed) for source, parsed in zip(sources, results, strict=True)]


def _content(
    intake: Intake, source: RawSource, parsed: ParsedChunks, *, title: str | None, keep: bool
) -> Content:
    data, doc_type, name = source.data, source.type, source.name
    if not parsed.chunks:
        # A source is not empty if its parser counted something that a reader sees.
        is_empty = doc_type in _EMPTY_WITHOUT_TEXT and not parsed.unread
        raise (NothingToRead if is_empty else KbprocError)(
            "operation.failed",
            f"{name} holds no text.",
            hint=_NO_TEXT.get(doc_type, "Only what holds text can be added."),
        )
    if parsed.source is not None:
        data = parsed.source
    in_record = keep and len(data) < LARGE_BYTES and data in possible_sources(parsed.chunks)
    new_source = intake.blobs.put(data, is_in_record=in_record) if keep else None
    tags, lost_tags = _usable_tags(parsed.tags)
    return Content(
        title=title or parsed.title or name,
        doc_type=doc_type,
        chunks=parsed.chunks,
        sha256=new_source.name if new_source else digest(data),
        size_bytes=len(data),
        tags=tags,
        metadata=_usable_metadata(parsed.metadata),
        unread={**parsed.unread, "tags": lost_tags} if lost_tags else parsed.unread,
        source=new_source,
        stamp=source.stamp if parsed.source is not None else "",
        origin=parsed.origin,
        messages=parsed.messages,
        derived_from=parsed.derived_from,
        parts=[(part.path, *_part(intake, source, part, keep=keep)) for part in parsed.parts],
        **parsed_facts_of(parsed),
    )


def emptied(intake: Intake, source: RawSource, *, keep: bool) -> Content:
    """Returns the content of a source that had a text before and has none any more."""
    return Content(
        title=source.name,
        doc_type=source.type,
        chunks=[],
        sha256=digest(source.data),
        size_bytes=len(source.data),
        source=intake.blobs.put(source.data) if keep else None,
    )


def _part(
    intake: Intake, holder: RawSource, part: ParsedPart, *, keep: bool
) -> tuple[str, Content | KbprocError | None]:
    """Returns the digest of a file within a source, and its content or the error, if it was read.

    A segment of a session log gets the log's stamp, because the log's own document may be unchanged
    since an earlier one.
    """
    if part.is_known:
        return holder.options.digests[part.path], None
    name = part.path.rpartition("/")[2]
    stamp = holder.stamp if holder.type == part.type else ""
    source = RawSource(part.data, part.type, name, stamp=stamp)
    if part.parsed is None:
        failure = part.failure
        assert failure is not None  # noqa: S101 a ParsedPart holds one of the two
        return digest(part.data), KbprocError(failure.type, failure.message, hint=failure.hint)
    try:
        content = _content(intake, source, part.parsed, title=None, keep=keep)
    except KbprocError as error:
        if error.type in ENDS_ALL:
            raise
        return digest(part.data), error
    return content.sha256, content


def _with_parsers(parse: Callable[[], T]) -> T:
    from kbproc.engine.sources.parse.pool import PoolRetired

    while True:
        try:
            return parse()
        except PoolRetired:  # the store has another model now, with another length of chunks
            continue


def _usable_tags(tags: Iterable[str]) -> tuple[list[str], int]:
    """Returns the tags that a source states and that are valid, and how many are lost or cut."""
    usable: dict[str, None] = {}
    lost = 0
    for tag in tags:
        try:
            [word] = clean_tags([tag])
        except KbprocError:
            lost += 1
            continue
        lost += len(word) > TAG_CHARS
        usable[word[:TAG_CHARS].strip("-")] = None
    return list(usable)[:MOST_TAGS], lost + max(0, len(usable) - MOST_TAGS)


def _usable_metadata(metadata: dict[str, Any]) -> dict[str, Any]:
    usable: dict[str, Any] = {}
    for key, value in list(metadata.items())[:64]:
        short = value[:1000] if isinstance(value, str) else value
        try:
            check_metadata({key: short})
        except KbprocError:
            continue
        usable[key] = short
    return usable


def text_of(blobs: Blobs, queries: Queries, row: DocumentRow) -> tuple[str, bool]:
    """Returns the source's own characters where it is a text, else the text that its parser read.

    Where chunks are hidden, or the source is damaged or missing, the text comes from the log.
    The second value is False if the source was needed and is lost. Raises resource.not_found for
    a past content that was forgotten.
    """
    if not row.sha256:
        raise erased_error()
    type = PARSED_AS.get(row.type, row.type)
    reads_source = is_text(type) and not _hides_some(queries, row.id)
    data = _source(blobs, row) if reads_source else None
    if data is None:
        return whole_text(chunk.content for chunk in queries.chunks_of(row.id)), not reads_source
    # A text from a request is stored as UTF-8.
    is_from_request = row.path is None and row.url is None
    return data.decode() if is_from_request else source_text(data, type, row.title), True


def written_text(blobs: Blobs, row: DocumentRow) -> str | None:
    """Returns the characters of a source that is a text, unchanged.

    None for other sources, and for a source that is damaged, missing or forgotten.
    """
    type = PARSED_AS.get(row.type, row.type)
    try:
        data = _source(blobs, row) if row.sha256 and is_text(type) else None
        return None if data is None else source_text(data, type, row.title)
    except KbprocError:  # also if the source lies on another node that can't be reached
        return None


def _source(blobs: Blobs, row: DocumentRow) -> bytes | None:
    """Returns the source's bytes; None if they are damaged or missing."""
    try:
        return blobs.get(row.sha256)
    except KbprocError as error:
        if error.type != "store.corrupt":
            raise
        return None


def _hides_some(queries: Queries, id: int) -> bool:
    """Returns True if chunks were hidden since the document's newest revision."""
    kinds = [event.type for event in queries.events_of_document(id)]
    since = kinds[::-1].index(DocWritten.tag()) if DocWritten.tag() in kinds else 0
    return ChunkDeleted.tag() in kinds[len(kinds) - since :]


def _labels_after(row: DocumentRow, content: Content) -> Labels:
    """Returns the labels after a reparse; a text from a request keeps those of the request."""
    if row.path is None and row.url is None:
        facts = SourceFacts(unread=content.unread) if content.unread else None
        return Labels(list(row.tags), msgspec.json.decode(row.metadata), facts)
    return labels_of(content, row, [], {})


def _same_labels(row: DocumentRow, content: Content) -> bool:
    after = _labels_after(row, content)
    metadata = msgspec.json.decode(row.metadata)
    return (
        (after.tags, after.metadata) == (list(row.tags), metadata)
        and content.unread == row.unread
        and parsed_facts_of(content) == parsed_facts_of(row)
    )


def with_holder(content: Content, path: str | None) -> Content:
    """Returns the content of a file within another, with the path of the file that holds it."""
    holder, within, _ = (path or "").rpartition(WITHIN)
    if not within or not is_held(path or ""):
        return content
    return msgspec.structs.replace(content, metadata={**content.metadata, "part_of": holder})


def options_of(row: DocumentRow) -> ReadOptions:
    """Returns the options with which the source was read last."""
    languages = msgspec.json.decode(row.metadata).get(OCR_LANGUAGES)
    return ReadOptions(
        parts=True,
        archives=row.type == "archive",
        ocr=languages if isinstance(languages, str) else "",
    )


def _as_stored(content: Content, row: DocumentRow) -> Content:
    """Returns the content with the document's type and the aliases that its author gave."""
    own = row.aliases if row.type == "knowledge" else ()
    aliases = list(dict.fromkeys([*own, *content.aliases]))[:MOST_ALIASES]
    return msgspec.structs.replace(content, doc_type=row.type, aliases=aliases)


def reparse_one(store: SeenStore, intake: Intake, row: DocumentRow, write: LongWrite) -> bool:
    """Parses the source again and writes a new revision if the content differs.

    Returns True if it wrote one.
    """
    name = Path(row.path).name if row.path else row.title
    data = intake.blobs.get(row.sha256)
    if not data.strip():
        return False
    with store.reading() as snapshot:
        old = [chunk.content for chunk in snapshot.queries.chunks_of(row.id)]
    try:
        content = read_content(
            intake,
            data,
            PARSED_AS.get(row.type, row.type),
            name,
            title=row.title,
            options=options_of(row),
        )
    except NothingToRead:
        if old:
            raise
        return False
    content = with_holder(_as_stored(content, row), row.path)
    if old == content.chunks and _same_labels(row, content):
        return False

    def decide(here: DecisionState) -> Decision:
        current = here.queries.document(row.id)
        if current is None or current.deleted_at or current.sha256 != row.sha256:
            return Decision(events=[], data=None)  # another writer has stored newer content
        labels = _labels_after(current, content)
        members = {"title": current.title, "modified_at": current.modified_at}
        event = document_written(
            here,
            msgspec.structs.replace(content, **members),
            kb=current.kb,
            existing=current,
            ids=Ids(here),
            tags=labels.tags,
            metadata=labels.metadata,
            source_facts=labels.source_facts,
            path=current.path,
            url=current.url,
            source_id=current.source_id,
        )
        event = msgspec.structs.replace(event, entry=here.queries.entry_facts(row.id))
        return Decision(events=[event], data=event)

    return write.item(decide) is not None


# -------------------------------------------------------------------- progress


class UnderWay:
    """The progress of files that several threads read; one thread asks for `news`."""

    def __init__(self) -> None:
        self._changing = threading.Lock()
        self._messages: dict[object, str] = {}  # ordered by each file's first report
        self._last: str | None = None

    @contextlib.contextmanager
    def reading(self, name: str) -> Iterator[Callable[[Progress], None]]:
        """Yields the function that takes the file's progress."""
        key = object()

        def tell(progress: Progress) -> None:
            with self._changing:
                self._messages[key] = f"{name}: {progress.in_words()}"

        try:
            yield tell
        finally:
            with self._changing:
                self._messages.pop(key, None)

    def news(self) -> str | None:
        """Returns a message about the file that began first; None if it is the last one again."""
        with self._changing:
            message = next(iter(self._messages.values()), None)
        if message == self._last:
            return None
        self._last = message
        return message
