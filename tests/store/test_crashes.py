"""Every prefix of a course of writes, as a crash leaves it: nothing acknowledged is lost."""

from __future__ import annotations

import contextlib
import errno
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from kbproc.base import disk, durable
from kbproc.base.errors import KbprocError
from kbproc.engine.log import file
from kbproc.engine.log.file import FileLog
from kbproc.engine.log.record import START, Position
from kbproc.engine.projections.catalog.catalog import Catalog
from tests.kit.courses import (
    Client,
    Recording,
    Step,
    assert_damaged,
    check_end,
    check_log,
    check_refusals,
    check_store,
    crashes,
    endure,
    models_of,
    record,
)
from tests.kit.crashes import Disk, Fault, Lost, Mixed, Model, Recorder, has_hole, write_tree
from tests.kit.patience import LONG, all_or
from tests.kit.records import commit, draft

LARGE = "the harbour is kept open " + "and so on " * 7000  # too long for a source pack


def keep_aside(client: Client) -> None:
    """Leaves a damaged file as a repair sets it aside."""
    folder = client.folder / "store" / "damaged" / "000001" / "blobs"
    durable.make_folder(folder)
    durable.replace(folder / "one", b"a zebra")


COURSE = [
    Step("doc.create", {"title": "One", "text": "The first text."}),
    Step("doc.create", {"title": "Secret", "text": "The zebra of the lighthouse. "}),
    Step("doc.update", {"id": 1, "text": "The first text, written anew."}),
    Step("write", {"name": "a.md", "text": "# A\n\nA small file.\n"}),
    Step("write", {"name": "b.md", "text": f"# B\n\n{LARGE} of quagga\n"}),
    Step("doc.ingest", {"paths": ["a.md", "b.md"]}),
    Step("kb.create", {"slug": "other"}),
    Step("knowledge.store", {"title": "Old", "body": "The lamp is lit at six."}),
    Step("session.create", {"title": "A talk"}),
    Step("embed"),
    Step("doc.delete", {"ids": [1]}),
    Step("events.revert", {"seqs": [10]}),
    Step("session.ask", {"session_id": 1, "question": "When is the lamp lit?"}),
    Step("aside", {"do": keep_aside}),
    Step("store.purge", {"document_ids": [2, 4]}, ("zebra", "quagga")),
    Step("model.use", {"name": "other", "kind": "hash", "dim": 32}),
    Step("tidy"),
    Step("open"),
    Step("doc.create", {"title": "Last", "text": "The last text."}),
    Step("embed"),  # the catalog takes the record in, whose source may wait until then
    Step("store.compact", {"before": "2099-01-01T00:00:00Z"}),
]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes segments small, and syncs nothing, because no power fails here."""
    monkeypatch.setattr(file, "SEGMENT_BYTES", 3000)
    monkeypatch.setattr("kbproc.engine.sources.packs._ROOM", 4096)
    for call in ("sync", "sync_data"):
        monkeypatch.setattr(disk, call, lambda fd: None)


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file, "SEGMENT_BYTES", 3000)
        patch.setattr("kbproc.engine.sources.packs._ROOM", 4096)
        return record(tmp_path_factory.mktemp("course"), COURSE)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "after"
    shutil.rmtree(tmp_path / "after", ignore_errors=True)


SEEDS = all_or([0], range(20))
EVERY = 1 if LONG else 150  # one crash of so many is opened as a whole store


@pytest.mark.parametrize("seed", SEEDS)
def test_log_and_sources_after_every_crash(recording: Recording, place: Path, seed: int) -> None:
    for name, crash in crashes(recording, models_of(seed), seed):
        with naming(name):
            check_log(crash, place)
        shutil.rmtree(place)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_store_after_a_crash(
    recording: Recording, place: Path, bench: Catalog, seed: int
) -> None:
    """Quickly: where the power fails after each answer, and some other crashes."""
    ends = {mark.end for mark in recording.marks}
    for number, (name, crash) in enumerate(crashes(recording, models_of(seed), seed)):
        after_answer = crash.calls in ends and "model 1" in name
        if after_answer or (number + seed) % EVERY == 0:
            with naming(name):
                check_store(crash, place, bench)
            shutil.rmtree(place)


@contextlib.contextmanager
def naming(crash: str) -> Iterator[None]:
    """Adds to an error which crash it was."""
    try:
        yield
    except Exception as error:
        error.add_note(f"after {crash}")
        raise


# A fault meets one call of so many, so that the course goes on in between.
STRIDE = 60
FAULTS = {
    "full": Fault(errno.ENOSPC),
    "short": Fault(errno.ENOSPC, is_short=True),
    "failing": Fault(errno.EIO),
}


@pytest.mark.parametrize(
    ("first", "kind"),
    all_or(
        [(7, "full"), (19, "failing"), (31, "short")],
        [(first, kind) for first in range(STRIDE) for kind in FAULTS],
    ),
)
def test_a_disk_that_refuses_calls(
    tmp_path: Path, bench: Catalog, recording: Recording, first: int, kind: str
) -> None:
    def fault(number: int, call: str) -> Fault | None:
        return FAULTS[kind] if number % STRIDE == first else None

    endurance = endure(tmp_path, COURSE, fault)
    documents = check_end(tmp_path, COURSE, bench)
    assert sorted(title for _, title, _ in documents) == ["A", "Last", "Old", "One"]
    check_refusals(endurance, COURSE, tmp_path)


def write_until_refused(folder: Path) -> list[Position]:
    """Appends batches of two records until one is refused; returns what was accepted."""
    accepted: list[Position] = []
    with contextlib.suppress(KbprocError, OSError), closing(FileLog.open(folder)) as log:
        for number in range(1, 9, 2):
            written = commit(log, [draft(number), draft(number + 1)])
            accepted += [record.position for record in written]
    return accepted


@pytest.mark.parametrize("kind", FAULTS)
def test_what_the_log_refused_does_not_come_back(tmp_path: Path, place: Path, kind: str) -> None:
    """The disk refuses each call in turn, and the machine crashes after the refusal."""
    for refused in range(1, 16):
        root = tmp_path / f"{refused}"
        root.mkdir()
        recorder = Recorder(root, lambda n, call, at=refused: FAULTS[kind] if n == at else None)
        with recorder.recording():
            accepted = write_until_refused(root / "log")
        disk = Disk()
        for op in recorder.ops:
            disk.apply(op)
        for number, model in enumerate((Model(), Lost(), *map(Mixed, range(8)))):
            tree = disk.tree(model)
            write_tree(tree, place)
            with naming(f"a refusal of call {refused}, model {number}"):
                if not accepted and has_hole(tree, "log/"):
                    assert_damaged(lambda: FileLog.open(place / "log"))
                else:
                    applied = accepted[-1] if accepted else START
                    with closing(FileLog.open(place / "log", applied)) as log:
                        assert [record.position for record in log.read()] == accepted
            shutil.rmtree(place)
