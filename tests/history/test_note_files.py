"""A purge removes a note's own files, and lists those that hold anything else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kbproc.base.errors import KbprocError
from kbproc.engine.events.document import DocDeleted
from kbproc.engine.projections.catalog.rows import DocumentRow
from kbproc.engine.store.store import Store
from kbproc.knowledge.history.note_files import NoteFile, NoteFiles, remove_purged
from tests.kit import knowledge, notes
from tests.kit.knowledge import sha256
from tests.kit.talk import Session

FIRST, OTHER = "# First\n", "# Other\n"


@pytest.fixture
def store(session: Session) -> Store:
    """A store with the agent gull, whose folder no watcher follows."""
    notes.attach(session)
    knowledge.agent(session.store, "gull")
    return session.store


@pytest.fixture
def folder(store: Store) -> Path:
    return store.folder.resolve() / "notes" / "gull"


Look = Callable[[int], tuple[NoteFiles, DocumentRow]]


@pytest.fixture
def look(store: Store) -> Look:
    """Returns the files that a purge of this document concerns, and its row."""

    def look(id: int) -> tuple[NoteFiles, DocumentRow]:
        with store.reading() as snapshot:
            row = snapshot.queries.documents_by_id([id])[id]
            return NoteFiles(store, snapshot.queries, [row]), row

    return look


def test_the_file_of_a_live_note_goes_unless_it_was_edited(
    store: Store, folder: Path, look: Look
) -> None:
    id = knowledge.note(store, "gull", "tides", FIRST)
    files, _ = look(id)
    assert (files.strays, files.remaining) == ({}, [])
    (folder / "tides.md").write_text(OTHER)
    with store.reading(), pytest.raises(KbprocError) as error:
        files.remove()
    assert error.value.type == "resource.conflict"
    assert error.value.message == f"{folder}/tides.md was edited in the meantime."
    (folder / "tides.md").write_text(FIRST)
    with store.reading():
        files.remove()
    assert not (folder / "tides.md").exists()


def test_a_hidden_notes_file_goes_if_it_has_a_text_of_the_note(
    store: Store, folder: Path, look: Look
) -> None:
    id = knowledge.note(store, "gull", "tides", FIRST)
    knowledge.put(store, DocDeleted(id=id), method="note.delete")
    knowledge.agent(store, "heron")
    knowledge.note(store, "heron", "tides", FIRST)  # the same name and text, elsewhere
    path = folder / "tides.md"
    files, _ = look(id)
    assert files.strays == {id: NoteFile(folder, "tides", sha256(FIRST))}
    assert files.strays[id].path == path
    path.write_text(OTHER)
    files, _ = look(id)
    assert (files.strays, files.remaining) == ({}, [path]), "another text may be a person's"
    path.write_bytes(b"\xff no text")
    assert look(id)[0].remaining == [path]
    path.write_text(" \n")
    files, _ = look(id)
    assert (files.strays, files.remaining) == ({}, []), "a blank file holds nothing"
    path.unlink()
    assert look(id)[0].remaining == []


def test_another_nodes_purge_takes_only_files_with_the_notes_own_texts(
    store: Store, folder: Path
) -> None:
    folder.mkdir(parents=True)
    path = folder / "tides.md"
    texts = {("notes/gull", "tides"): {sha256(FIRST)}, ("notes/nobody", "x"): {sha256(FIRST)}}

    def remove() -> None:
        with store.lane():
            remove_purged(store, texts, [])

    path.write_text(OTHER)
    remove()
    assert path.read_text() == OTHER
    path.write_text(FIRST)
    remove()
    assert not path.exists()
    remove()  # a file that is gone is no error


def test_a_file_that_is_now_another_live_notes_stays(store: Store, folder: Path) -> None:
    id = knowledge.note(store, "gull", "tides", FIRST)
    texts = {("notes/gull", "tides"): {sha256(FIRST)}}
    with store.lane():
        remove_purged(store, texts, [])
        assert (folder / "tides.md").exists()
        remove_purged(store, texts, [id])
    assert not (folder / "tides.md").exists()
