"""Golden transcripts: raw bytes, over real pipes and in memory."""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

from tests.conversations import CONVERSATIONS, make_files
from tests.talk import REPO, in_memory, over_pipes

# Transcripts name their folder, so it has to be the same everywhere.
BASE = Path("/tmp/kbproc-golden")


class Transcripts(SingleFileSnapshotExtension):
    """One plain file a conversation, below golden/."""

    _write_mode = WriteMode.TEXT
    file_extension = "txt"

    @classmethod
    def dirname(cls, *, test_location: Any) -> str:
        return str(REPO / "golden" / Path(test_location.filepath).stem)


@pytest.fixture
def transcripts(snapshot: SnapshotAssertion) -> SnapshotAssertion:
    return snapshot.use_extension(Transcripts)


@pytest.fixture
def folder(request: pytest.FixtureRequest) -> Iterator[Path]:
    """The same path on every machine, and one run at a time in it."""
    name = request.node.callspec.params["name"]
    BASE.mkdir(exist_ok=True)
    with (BASE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        path = BASE / name
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir()
        make_files(path)
        yield path
        shutil.rmtree(path)


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_over_pipes(name: str, folder: Path, transcripts: SnapshotAssertion) -> None:
    talk = CONVERSATIONS[name]
    options = [f"{key}={value}" for key, value in talk.options.items()]
    got = over_pipes(talk.script, cwd=folder, model=talk.model, options=options, parked=talk.parked)
    assert got.text() == transcripts


@pytest.mark.parametrize("name", [n for n, talk in CONVERSATIONS.items() if talk.in_memory])
def test_in_memory(name: str, folder: Path) -> None:
    talk = CONVERSATIONS[name]
    got = in_memory(talk.script, cwd=folder, model=talk.model, parked=talk.parked, **talk.options)
    assert (
        got.text() == (REPO / "golden" / "test_golden" / f"test_over_pipes[{name}].txt").read_text()
    )


def test_no_stray_files() -> None:
    assert [path.name for path in (REPO / "golden").iterdir() if path.is_file()] == []
    assert tempfile.gettempdir()
