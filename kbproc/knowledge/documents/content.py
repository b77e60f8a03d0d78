"""From a source's bytes to a document's content.

Owns: parsing in the pool, keeping the source, what of a document's own tags and
metadata can be used, the whole text of a document, and cutting it afresh.
Refuses to know: formats (sources/parse/), files and folders (ingest.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from kbproc.base.errors import KbprocError
from kbproc.base.values import MOST_TAGS, TAG_CHARS, check_metadata, clean_tags
from kbproc.documents.document import whole_text
from kbproc.documents.revision import Content, Ids, Labels, labels_of, written
from kbproc.documents.under_way import UnderWay
from kbproc.embedding.parsers import Parsers
from kbproc.events.document import ChunkDeleted, ChunkText, DocWritten, SourceFacts
from kbproc.sources.blobs import Blobs, digest, forgotten
from kbproc.sources.parse.formats import is_text, source_text
from kbproc.store.decision import Decision, Here
from kbproc.store.pipeline import LongWrite
from kbproc.store.state import SeenStore
from kbproc.views.catalog.queries.all import Queries
from kbproc.views.catalog.rows import DocumentRow

if TYPE_CHECKING:
    from kbproc.sources.parse.progress import Progress
    from kbproc.sources.parse.worker import ParsedChunks


class Intake:
    """Where sources go in: the processes that parse them, and where their bytes are kept."""

    def __init__(self, parsers: Parsers, blobs: Blobs) -> None:
        self.parsers = parsers
        self.blobs = blobs


class Source(NamedTuple):
    """`name`: a file's, without its folders; the title of what has no file."""

    data: bytes
    type: str
    name: str


class NothingToRead(KbprocError):
    """A source without a text that any reader would see: blank, or only a comment."""


T = TypeVar("T")

# These end all that is read together; every other error is one source's failure.
ENDS_ALL = frozenset({"store.io", "operation.cancelled"})
_TOGETHER = 1 << 20  # bytes that go to a parser at once; a file may have grown since it was found
_LARGE = 64 << 10  # bytes that may take seconds to parse
_SHORT = 4 << 10  # bytes of UTF-8: cut within milliseconds, whatever they are
PARSED_AS = {"knowledge": "markdown", "note": "markdown"}
_NO_TEXT = {
    "pdf": "A scanned document needs text recognition first.",
    "html": "The page may be made by scripts: save it as shown by a browser, and add that.",
}


_EMPTY_WITHOUT_TEXT = frozenset({"text", "markdown", "code"})


def content_of_text(
    intake: Intake,
    text: str,
    type: str,
    title: str,
    *,
    field: str = "$.params.text",
    keep: bool = True,
) -> Content:
    """Raises input.invalid_params for a text that can't be kept or holds nothing to read."""
    try:
        data = text.encode()
    except UnicodeEncodeError:
        raise KbprocError(
            "input.invalid_params", f"{field} holds half a surrogate pair.", field=field
        ) from None
    if not text.strip():
        raise KbprocError("input.invalid_params", f"{field} is blank.", field=field)
    is_plain = type == "text" and len(data) <= _SHORT and "\0" not in text and "\x1b" not in text
    plain = text if is_plain else None
    return read_content(intake, data, type, title, title=title, keep=keep, plain=plain)


def read_content(
    intake: Intake,
    data: bytes,
    doc_type: str,
    name: str,
    *,
    title: str | None = None,
    keep: bool = True,
    plain: str | None = None,
    tell: Callable[[Progress], None] | None = None,
) -> Content:
    """Parses in a separate process and keeps the bytes as a blob; a preview does not `keep` them.

    `plain`: a text of which nothing is to be parsed: it is cut into chunks here, in less time than
    it takes to ask the other process. `tell` gets how far the parser is. Raises what the parser
    raises; a document without any text is a failure too.
    """

    def parse() -> ParsedChunks:
        if plain is not None:
            return intake.parsers.get().read_here(plain, name, title)
        return intake.parsers.parse(data, doc_type, name, title, tell)

    source = Source(data, doc_type, name)
    return _content(intake, source, _with_parsers(parse), title=title, keep=keep)


def read_some(
    intake: Intake, sources: Sequence[Source], under_way: UnderWay, *, keep: bool
) -> list[Content | KbprocError]:
    """What `read_content` says of each. Several are short, and are parsed together.

    `under_way` gets how far the parser is with a large one.

    Raises what would befall the others, too.
    """
    from kbproc.sources.parse.worker import Job

    def attempt(source: Source, parsed: ParsedChunks | KbprocError | None) -> Content | KbprocError:
        try:
            if isinstance(parsed, KbprocError):
                raise parsed
            if parsed is None:
                if len(source.data) < _LARGE:
                    return read_content(intake, *source, keep=keep)
                with under_way.reading(source.name) as tell:
                    return read_content(intake, *source, keep=keep, tell=tell)
            return _content(intake, source, parsed, title=None, keep=keep)
        except KbprocError as error:
            if error.type in ENDS_ALL:
                raise
            return error

    if len(sources) < 2 or sum(len(source.data) for source in sources) > _TOGETHER:
        return [attempt(source, None) for source in sources]
    jobs = [Job(data=data, type=type, name=name, title=None) for data, type, name in sources]
    found = _with_parsers(lambda: intake.parsers.parse_some(jobs))
    return [attempt(source, parsed) for source, parsed in zip(sources, found, strict=True)]


def _content(
    intake: Intake, source: Source, parsed: ParsedChunks, *, title: str | None, keep: bool
) -> Content:
    data, doc_type, name = source
    if not parsed.chunks:
        # A source is not empty if its parser counted something that a reader sees.
        is_empty = doc_type in _EMPTY_WITHOUT_TEXT and not parsed.unread
        raise (NothingToRead if is_empty else KbprocError)(
            "operation.failed",
            f"{name} holds no text.",
            hint=_NO_TEXT.get(doc_type, "Only what holds text can be added."),
        )
    held = intake.blobs.put(data) if keep else None
    tags, lost_tags = _usable_tags(parsed.tags)
    return Content(
        title=title or parsed.title or name,
        doc_type=doc_type,
        chunks=[ChunkText(**msgspec.structs.asdict(chunk)) for chunk in parsed.chunks],
        sha256=held.name if held else digest(data),
        size_bytes=len(data),
        tags=tags,
        metadata=_usable_metadata(parsed.metadata),
        pages=parsed.pages,
        unread={**parsed.unread, "tags": lost_tags} if lost_tags else parsed.unread,
        source=held,
    )


def _with_parsers(parse: Callable[[], T]) -> T:
    from kbproc.sources.parse.pool import Retired

    while True:
        try:
            return parse()
        except Retired:  # another model has come meanwhile, and another length of chunks
            continue


def _usable_tags(tags: Iterable[str]) -> tuple[list[str], int]:
    """A document's own tags as far as they can be tags, and how many are left out or cut short."""
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
    kept: dict[str, Any] = {}
    for key, value in list(metadata.items())[:64]:
        short = value[:1000] if isinstance(value, str) else value
        try:
            check_metadata({key: short})
        except KbprocError:
            continue
        kept[key] = short
    return kept


def text_of(blobs: Blobs, queries: Queries, row: DocumentRow) -> tuple[str, bool]:
    """The source's own characters where it is a text, else what its parser read in it.

    Where chunks of it are hidden, or the source is damaged or missing, what the log holds; the
    second value is False for a source that was needed and is lost. Raises resource.not_found for
    a content of the past that was forgotten.
    """
    if not row.sha256:
        raise forgotten()
    type = PARSED_AS.get(row.type, row.type)
    wanted = is_text(type) and not _hides_some(queries, row.id)
    data = _source(blobs, row) if wanted else None
    if data is None:
        return whole_text(chunk.content for chunk in queries.chunks_of(row.id)), not wanted
    given = row.path is None and row.url is None  # by a method, and kept as UTF-8
    return data.decode() if given else source_text(data, type, row.title), True


def written_text(blobs: Blobs, row: DocumentRow) -> str | None:
    """The characters of a source that is text, as they stand in it.

    None for other sources, and for one that is damaged, missing or forgotten.
    """
    type = PARSED_AS.get(row.type, row.type)
    data = _source(blobs, row) if row.sha256 and is_text(type) else None
    try:
        return None if data is None else source_text(data, type, row.title)
    except KbprocError:
        return None


def _source(blobs: Blobs, row: DocumentRow) -> bytes | None:
    """None for bytes that are damaged or missing."""
    try:
        return blobs.get(row.sha256)
    except KbprocError as error:
        if error.type != "store.corrupt":
            raise
        return None


def _hides_some(queries: Queries, id: int) -> bool:
    """Whether chunks were hidden since the document was written last."""
    kinds = [event.type for event in queries.events_of_document(id)]
    since = kinds[::-1].index(DocWritten.tag()) if DocWritten.tag() in kinds else 0
    return ChunkDeleted.tag() in kinds[len(kinds) - since :]


def _labels_after(row: DocumentRow, content: Content) -> Labels:
    """A text that was given with a request keeps the labels that were given with it."""
    if row.path is None and row.url is None:
        facts = SourceFacts(unread=content.unread) if content.unread else None
        return Labels(list(row.tags), msgspec.json.decode(row.metadata), facts)
    return labels_of(content, row, [], {})


def _same_labels(row: DocumentRow, content: Content) -> bool:
    after = _labels_after(row, content)
    metadata = msgspec.json.decode(row.metadata)
    return (after.tags, after.metadata) == (list(row.tags), metadata) and (
        content.unread == row.unread
    )


def reparse_one(store: SeenStore, intake: Intake, row: DocumentRow, write: LongWrite) -> bool:
    """True if the parser reads the source in another way now: that is a new revision then."""
    name = Path(row.path).name if row.path else row.title
    data = intake.blobs.get(row.sha256)
    content = read_content(intake, data, PARSED_AS.get(row.type, row.type), name, title=row.title)
    content = msgspec.structs.replace(content, doc_type=row.type)
    with store.reading() as snapshot:
        old = [chunk.content for chunk in snapshot.queries.chunks_of(row.id)]
    if old == content.chunks and _same_labels(row, content):
        return False

    def decide(here: Here) -> Decision:
        current = here.queries.document(row.id)
        if current is None or current.deleted_at or current.sha256 != row.sha256:
            return Decision(events=[], data=None)  # newer content came meanwhile
        labels = _labels_after(current, content)
        event = written(
            here,
            msgspec.structs.replace(content, title=current.title),
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
