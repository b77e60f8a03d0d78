"""Keeps the full-text index: BM25 over the chunks' words, by tantivy.

STORE/views/fulltext has a folder for each generation of the index, and `current.json`, which names
the generation in use and its log position.

Each chunk is indexed with its title and section in three forms: `stem`, the stems of its words;
`word`, the words themselves, with positions for phrases; and `head`, the beginnings of its words,
unless the chunk is in English. The title is indexed twice, so that it weighs double. Words in parts
("wi-fi", "1,284,500", `doc.ingest`) are also indexed as a whole in `name`, and the names of the
file and its folders in `file` and `folder`; these three fields hold stems. No text is stored: the
catalog has the rows that hits show.
"""

from __future__ import annotations

import contextlib
import itertools
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import msgspec
import tantivy
from msgspec import Struct

from kbproc.base.durable import SoundFiles, replace
from kbproc.base.errors import KbprocError
from kbproc.base.failpoints import reach
from kbproc.base.text.analysis import ANALYSIS_VERSION
from kbproc.engine.log.record import START, Position
from kbproc.engine.projections.catalog.rows import IndexRow
from kbproc.engine.projections.fulltext.files import CURRENT, damaged, is_sealed, schema_sum, sealed
from kbproc.engine.projections.fulltext.query import EVERY, FOREIGN
from kbproc.engine.projections.fulltext.search import FullTextSnapshot
from kbproc.engine.projections.fulltext.words import words_of

if TYPE_CHECKING:
    from kbproc.engine.projections.fulltext.beside import IndexProcess

# The first number changes with the schema, the second one with the analysis of words.
_VERSION = [7, ANALYSIS_VERSION]

_HEAP = 50_000_000
_REBUILD_HEAP = 1_000_000_000  # a limit, so large that one segment holds all: 1 kB a chunk is used
_LONGEST_WORD = 200  # bytes; longer ones are encoded data, not words of queries


class Built(Struct, frozen=True):
    """A new index that is ready to replace the live one."""

    name: str
    search_index: tantivy.Index
    position: Position


class FullText:
    """The index on disk, with one writer and any number of snapshots.

    The writer is this process, or from `write_beside` on a process of its own.
    """

    name: ClassVar[str] = "fulltext"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._name = ""
        self._index: tantivy.Index
        self._writer: tantivy.IndexWriter | None = None
        self._process: IndexProcess | None = None
        self.staged: Position | None = None  # position of the staged change
        self.position = START

    @classmethod
    def open(cls, folder: Path) -> FullText:
        """Opens the index. A missing or damaged one, or one of another version, becomes an empty
        one at START.

        Raises store.io.
        """
        self = cls(folder)
        with _as_store_io("open"):
            folder.mkdir(parents=True, exist_ok=True)
            if not self._resume():
                self._name = self._next_name()
                self._index = _create(folder / self._name)
                self._save(START)
            self._sweep()
        return self

    def _resume(self) -> bool:
        try:
            current = msgspec.json.decode((self._folder / CURRENT).read_bytes())
            if not is_sealed(current) or current["version"] != _VERSION:
                return False
            self._index = _opened(self._folder / current["generation"])
            self._name = current["generation"]
            self.position = Position(current["seq"], current["hash"])
        except (OSError, ValueError, KeyError, TypeError):
            return False
        return True

    def apply(self, removed: Sequence[int], rows: Iterable[IndexRow], position: Position) -> None:
        """Stages a change; see Follower.

        An empty change is not worth a commit, so the position stays behind.
        """
        rows = iter(rows)
        first = next(rows, None)
        if first is None and not removed:
            return
        self.staged = position
        try:
            with _as_store_io("write"):
                self._stage(removed, rows if first is None else itertools.chain([first], rows))
        except BaseException:
            self.rollback()
            raise

    def _stage(self, removed: Sequence[int], rows: Iterable[IndexRow]) -> None:
        if self._process is not None:
            with _as_ended():
                self._process.stage(removed, rows)
                reach("beside.sent")
            return
        if self._writer is None:
            self._index, self._writer = writer_of(self._folder / self._name)
        write(self._writer, removed, rows)

    def commit(self) -> None:
        """Makes the staged change durable; later snapshots show it. Raises store.io."""
        if self.staged is None:
            return
        with _as_store_io("commit"):
            reach("fulltext.commit")
            if self._process is not None:
                with _as_ended():
                    self._process.commit()
                reach("beside.committed")
            elif self._writer is not None:
                self._writer.commit()
            reach("fulltext.committed")
            self._save(self.staged)
            reach("fulltext.saved")
            self._index.reload()

    def rollback(self) -> None:
        """Drops the staged change."""
        staged, self.staged = self.staged, None
        self.write_here()
        if staged is not None and self._writer is not None:
            writer, self._writer = self._writer, None  # a writer that can't roll back is unusable
            with _as_store_io("roll back"):
                writer.rollback()
            self._writer = writer

    def rebuild(self, rows: Iterable[IndexRow], position: Position) -> None:
        """Replaces the index with a new one of `rows`; see `build` and `adopt`."""
        self.adopt(self.build(rows, position))

    def build(self, rows: Iterable[IndexRow], position: Position) -> Built:
        """Builds an index of `rows` at `position`, in chunk id order, in a single segment.

        Two indexes built from the same rows give the same scores to the bit. The live index does
        not change. Raises store.io.
        """
        name = self._next_name()
        try:
            with _as_store_io("rebuild"):
                index = _create(self._folder / name)
                writer = index.writer(_REBUILD_HEAP, 1)
                write(writer, (), rows)
                writer.commit()
                writer.wait_merging_threads()
                reach("fulltext.built")
        except BaseException:
            shutil.rmtree(self._folder / name, ignore_errors=True)
            raise
        return Built(name, index, position)

    def adopt(self, built: Built) -> None:
        """Replaces the live index with `built`; snapshots of the old index stay readable.

        Drops the staged change. Raises store.io.
        """
        self.close()
        built.search_index.reload()
        self._index, self._name = built.search_index, built.name
        with _as_store_io("rebuild"):
            self._save(built.position)
        self._sweep()

    def snapshot(self) -> FullTextSnapshot:
        """Returns the committed state, which later writes don't change."""
        return FullTextSnapshot(self._index.schema, self._index.searcher())

    @property
    def dead_ratio(self) -> float:
        """The share of deleted chunks that the statistics still count."""
        return self.snapshot().dead_ratio

    def damaged(self) -> list[str]:
        return damaged(self._folder, SoundFiles())

    def close(self) -> None:
        """Releases the writer and drops the staged change."""
        self.staged = None
        self._writer = None
        self.write_here()

    # --------------------------------------------------------- a process that writes

    def write_beside(self) -> None:
        """Has a process of its own write from now on, for as long as the calling thread lives.

        Nothing is staged. Raises OSError.
        """
        from kbproc.engine.projections.fulltext.beside import IndexProcess  # few stores need it

        if self._process is None:
            self._writer = None  # one process may write
            self._process = IndexProcess(self._folder / self._name)

    def write_here(self) -> None:
        """Ends the process that writes, if there is one."""
        process, self._process = self._process, None
        if process is not None:
            process.end()

    @property
    def is_written_beside(self) -> bool:
        return self._process is not None

    def _save(self, position: Position) -> None:
        # Called after tantivy's commit is on disk, because this file may lag behind it, never lead.
        current = {
            "generation": self._name,
            "seq": position.seq,
            "hash": position.hash,
            "version": _VERSION,
            "schema": schema_sum(self._folder / self._name),
        }
        data = msgspec.json.encode(sealed(current))
        replace(self._folder / CURRENT, data, name_is_durable=False)
        self.position, self.staged = position, None

    def _next_name(self) -> str:
        numbers = [int(path.name) for path in self._folder.iterdir() if path.name.isdecimal()]
        return f"{max(numbers, default=0) + 1:06}"

    def _sweep(self) -> None:
        for path in self._folder.iterdir():
            if path.is_dir() and path.name != self._name:
                shutil.rmtree(path, ignore_errors=True)


class ProcessEnded(Exception):
    """The process that wrote beside has ended, and the staged change with it."""


@contextlib.contextmanager
def _as_ended() -> Iterator[None]:
    try:
        yield
    except (OSError, EOFError) as error:
        raise ProcessEnded from error


@contextlib.contextmanager
def _as_store_io(action: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:  # tantivy raises ValueError for every failure
        raise KbprocError("store.io", f"The full-text index failed to {action}: {error}") from error


def _create(folder: Path) -> tantivy.Index:
    folder.mkdir()
    schema = (
        tantivy.SchemaBuilder()
        .add_integer_field("chunk_id", indexed=True, fast=True)
        .add_integer_field("document_id", indexed=True, fast=True)
        .add_text_field("kb", tokenizer_name="raw", index_option="basic")
        .add_text_field("tag", tokenizer_name="raw", index_option="basic")
        # Every chunk has EVERY, because its document frequency is the number of chunks that BM25's
        # statistics count, deleted ones included; tantivy has no other way to ask for it.
        # Chunks that are surely not in English have FOREIGN.
        .add_text_field("any", tokenizer_name="raw", index_option="basic")
        .add_text_field("stem", tokenizer_name="stem", index_option="freq")
        .add_text_field("head", tokenizer_name="word", index_option="freq")
        .add_text_field("name", tokenizer_name="stem", index_option="basic")
        .add_text_field("file", tokenizer_name="stem", index_option="basic")
        .add_text_field("folder", tokenizer_name="stem", index_option="basic")
        .add_text_field("word", tokenizer_name="word", index_option="position")
        .build()
    )
    return _with_tokenizers(tantivy.Index(schema, str(folder)))


def _with_tokenizers(index: tantivy.Index) -> tantivy.Index:
    tokenizer, keep = tantivy.Tokenizer.whitespace(), tantivy.Filter.remove_long(_LONGEST_WORD)
    plain = tantivy.TextAnalyzerBuilder(tokenizer).filter(keep)
    index.register_tokenizer("word", plain.build())
    english = tantivy.TextAnalyzerBuilder(tokenizer).filter(keep)
    index.register_tokenizer("stem", english.filter(tantivy.Filter.stemmer("english")).build())
    index.config_reader("manual")  # the other policy polls the folder from a thread of its own
    index.reload()
    return index


def writer_of(folder: Path) -> tuple[tantivy.Index, tantivy.IndexWriter]:
    """Returns the index of `folder`, opened anew, and its writer. Raises OSError, ValueError.

    An index that was opened before another process wrote does not know the files of that process,
    and would never remove them.
    """
    index = _opened(folder)
    return index, index.writer(_HEAP, 1)


def _opened(folder: Path) -> tantivy.Index:
    return _with_tokenizers(tantivy.Index.open(str(folder)))


def write(
    writer: tantivy.IndexWriter, removed_ids: Iterable[int], rows: Iterable[IndexRow]
) -> None:
    """Removes the chunks of documents, and adds chunks."""
    for document_id in set(map(int, removed_ids)):
        writer.delete_documents_by_term("document_id", document_id)
    for row in rows:
        writer.add_document(_document(row))


def _document(row: IndexRow) -> tantivy.Document:
    words = words_of(row)
    return tantivy.Document(
        chunk_id=row.chunk_id,
        document_id=row.document_id,
        kb=row.label,
        tag=row.tags,
        any=[EVERY, FOREIGN] if words.is_foreign else [EVERY],
        stem=_title_twice(words.stem),
        head=_title_twice(words.head),
        word=_title_twice(words.word),
        name=words.name,
        file=words.file,
        folder=words.folder,
    )


def _title_twice(values: list[str]) -> list[str]:
    return [*values[:1], *values]
