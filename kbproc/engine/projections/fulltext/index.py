"""The full-text index: BM25 over the chunks' words, kept by tantivy.

Owns: STORE/views/fulltext: one folder a generation, and `current.json`, which names the
generation and the log position it holds.
Refuses to know: the log, the catalog (callers hand it rows), and how it is searched (search.py).

Each chunk is indexed with its title and section in three forms: `stem`, the stems of its
words, `word`, the words as they stand, with positions for phrases, and where it is not in
English `head`, the beginnings of its words. The title stands there twice: it weighs double.
Words in parts ("wi-fi", "1,284,500", `doc.ingest`) are indexed as a whole, too, in `name`; words of
the names of its file and folders in `file` and `folder`. These have stems, too.
The row is stored, too: hits are shown as they were indexed.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple

import msgspec
import tantivy

from kbproc.base.checksums.sealed import is_sealed, sealed
from kbproc.base.durable import Seen, replace
from kbproc.base.errors import KbprocError
from kbproc.base.failpoints import reach
from kbproc.events.entry import EntryFacts
from kbproc.log.record import START, Position
from kbproc.text.analysis import ANALYSIS_VERSION, analyse
from kbproc.text.language import is_foreign
from kbproc.text.names import names
from kbproc.text.stems import heads, stemmed_by_script
from kbproc.views.catalog.rows import DocumentRow, IndexRow, NoteRow
from kbproc.views.fulltext.files import CURRENT, damaged, schema_sum
from kbproc.views.fulltext.location import located
from kbproc.views.fulltext.query import EVERY, FOREIGN, note_mark
from kbproc.views.fulltext.search import FullTextSnapshot

# Of the schema, words, stored rows.
_KEPT = (IndexRow, DocumentRow, EntryFacts, NoteRow)
_VERSION = [4, ANALYSIS_VERSION, *(name for kind in _KEPT for name in kind.__struct_fields__)]

_HEAP = 50_000_000
_REBUILD_HEAP = 1_000_000_000  # a limit: taken as texts come, about 1 kB a chunk; one segment
_LONGEST_WORD = 200  # bytes; longer ones are blobs that nobody types
_encode = msgspec.msgpack.Encoder().encode


class Built(NamedTuple):
    """An index that is ready to take the live one's place."""

    name: str
    made: tantivy.Index
    position: Position


class FullText:
    """The index on disk; one writer, any number of snapshots."""

    name: ClassVar[str] = "fulltext"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._name = ""
        self._index: tantivy.Index
        self._writer: tantivy.IndexWriter | None = None
        self.staged: Position | None = None  # what `commit` would make durable
        self.gathered = 0  # chunks that are staged
        self.position = START

    @classmethod
    def open(cls, folder: Path) -> FullText:
        """Opens the index; what is missing, damaged or of another version starts empty at START.

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
            current = json.loads((self._folder / CURRENT).read_bytes())
            if not is_sealed(current) or current["version"] != _VERSION:
                return False
            self._index = _prepared(tantivy.Index.open(str(self._folder / current["generation"])))
            self._name = current["generation"]
            self.position = Position(current["seq"], current["hash"])
        except (OSError, ValueError, KeyError, TypeError):
            return False
        return True

    def apply(self, removed: Sequence[int], rows: Iterable[IndexRow], position: Position) -> None:
        """See Follower. Nothing to apply is not worth a commit: the position lags then."""
        rows = list(rows)
        if not rows and not removed:
            return
        self.staged = position
        try:
            with _as_store_io("write"):
                self._stage(removed, rows)
        except BaseException:
            self.rollback()
            raise

    def _stage(self, removed: Iterable[int], rows: list[IndexRow]) -> None:
        if self._writer is None:
            self._writer = self._index.writer(_HEAP, 1)
        for document_id in set(map(int, removed)):
            self._writer.delete_documents_by_term("document_id", document_id)
        for row in rows:
            self._writer.add_document(_document(row))
        self.gathered += len(rows)

    def commit(self) -> None:
        """Makes what is staged durable; snapshots taken from now on show it. Raises store.io."""
        if self.staged is None:
            return
        with _as_store_io("commit"):
            reach("fulltext.commit")
            if self._writer is not None:
                self._writer.commit()
            reach("fulltext.committed")
            self._save(self.staged)
            reach("fulltext.saved")
            self._index.reload()

    def rollback(self) -> None:
        """Forgets what is staged."""
        staged, self.staged, self.gathered = self.staged, None, 0
        if staged is not None and self._writer is not None:
            writer, self._writer = self._writer, None  # one that fails here is of no more use
            with _as_store_io("roll back"):
                writer.rollback()
            self._writer = writer

    def rebuild(self, rows: Iterable[IndexRow], position: Position) -> None:
        """Replaces the index by one made of `rows`; see `build` and `adopt`."""
        self.adopt(self.build(rows, position))

    def build(self, rows: Iterable[IndexRow], position: Position) -> Built:
        """An index of `rows` at `position`, in chunk id order, in a single segment.

        Two indexes built from the same rows give the same scores to the bit. The live
        one is not touched. Raises store.io.
        """
        name = self._next_name()
        try:
            with _as_store_io("rebuild"):
                index = _create(self._folder / name)
                writer = index.writer(_REBUILD_HEAP, 1)
                for row in rows:
                    writer.add_document(_document(row))
                writer.commit()
                writer.wait_merging_threads()
                reach("fulltext.built")
        except BaseException:
            shutil.rmtree(self._folder / name, ignore_errors=True)
            raise
        return Built(name, index, position)

    def adopt(self, built: Built) -> None:
        """Puts `built` in the place of the index; snapshots of the old one go on reading.

        Whatever is staged is dropped. Raises store.io.
        """
        self.close()
        built.made.reload()
        self._index, self._name = built.made, built.name
        with _as_store_io("rebuild"):
            self._save(built.position)
        self._sweep()

    def snapshot(self) -> FullTextSnapshot:
        """What is committed now; it stays as it is, whatever is written later."""
        return FullTextSnapshot(self._index.schema, self._index.searcher())

    @property
    def dead_ratio(self) -> float:
        """The share of deleted chunks that the statistics still count."""
        return self.snapshot().dead_ratio

    def damaged(self) -> list[str]:
        return damaged(self._folder, Seen())

    def close(self) -> None:
        """Lets go of the writer; what is staged is lost, what is committed stays."""
        self.staged = None
        self._writer = None

    def _save(self, position: Position) -> None:
        # tantivy's commit is on disk by now: this file may lag behind it, never lead.
        current = {
            "generation": self._name,
            "seq": position.seq,
            "hash": position.hash,
            "version": _VERSION,
            "schema": schema_sum(self._folder / self._name),
        }
        data = json.dumps(sealed(current)).encode()
        replace(self._folder / CURRENT, data, name_is_durable=False)
        self.position, self.staged, self.gathered = position, None, 0

    def _next_name(self) -> str:
        taken = [int(path.name) for path in self._folder.iterdir() if path.name.isdecimal()]
        return f"{max(taken, default=0) + 1:06}"

    def _sweep(self) -> None:
        for path in self._folder.iterdir():
            if path.is_dir() and path.name != self._name:
                shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def _as_store_io(doing: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:  # tantivy raises ValueError for every failure
        raise KbprocError("store.io", f"The full-text index failed to {doing}: {error}") from error


def _create(folder: Path) -> tantivy.Index:
    folder.mkdir()
    schema = (
        tantivy.SchemaBuilder()
        .add_integer_field("chunk_id", indexed=True, fast=True)
        .add_integer_field("document_id", indexed=True, fast=True)
        .add_text_field("kb", tokenizer_name="raw", index_option="basic")
        # EVERY is in every chunk: its document frequency is the number of chunks that BM25's
        # statistics count, deleted ones included, which tantivy does not tell otherwise.
        # FOREIGN is in those that are surely not in English, `note_mark` in a note's first.
        .add_text_field("any", tokenizer_name="raw", index_option="basic")
        .add_text_field("stem", tokenizer_name="stem", index_option="freq")
        .add_text_field("head", tokenizer_name="word", index_option="freq")
        .add_text_field("name", tokenizer_name="stem", index_option="basic")
        .add_text_field("file", tokenizer_name="stem", index_option="basic")
        .add_text_field("folder", tokenizer_name="stem", index_option="basic")
        .add_text_field("word", tokenizer_name="word", index_option="position")
        .add_bytes_field("row", stored=True, indexed=False)
        .build()
    )
    return _prepared(tantivy.Index(schema, str(folder)))


def _prepared(index: tantivy.Index) -> tantivy.Index:
    tokenizer, keep = tantivy.Tokenizer.whitespace(), tantivy.Filter.remove_long(_LONGEST_WORD)
    plain = tantivy.TextAnalyzerBuilder(tokenizer).filter(keep)
    index.register_tokenizer("word", plain.build())
    english = tantivy.TextAnalyzerBuilder(tokenizer).filter(keep)
    index.register_tokenizer("stem", english.filter(tantivy.Filter.stemmer("english")).build())
    index.config_reader("manual")  # the other policy polls the folder from a thread of its own
    index.reload()
    return index


def _document(row: IndexRow) -> tantivy.Document:
    # Separate values: a phrase does not run from a title into the text.
    title = analyse(row.title)
    text = analyse(row.text)
    parts = [title, title, analyse(row.section or ""), text]
    foreign = is_foreign(text.split())
    file, folders = located(row.path, row.url)
    marks = [EVERY, *([FOREIGN] if foreign else [])]
    if row.note is not None:
        marks.append(note_mark(row.kb, row.note.source_id))
    return tantivy.Document(
        chunk_id=row.chunk_id,
        document_id=row.document_id,
        kb=row.label,
        any=marks,
        stem=[stemmed_by_script(part) for part in parts],
        head=[] if foreign is False else [heads(part) for part in parts],
        word=parts,
        name=stemmed_by_script(" ".join(names(f"{row.title}\n{row.section or ''}\n{row.text}"))),
        file=stemmed_by_script(analyse(file)),
        folder=stemmed_by_script(analyse(folders)),
        row=_encode(row),
    )
