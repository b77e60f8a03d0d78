"""A process alone does nothing for others; a node erases, applies and shares what others write."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kbproc.base.errors import KbprocError
from kbproc.engine.events import codec
from kbproc.engine.events.document import DocWritten
from kbproc.engine.log.file import FileLog
from kbproc.engine.log.record import START
from kbproc.knowledge.agents.notes.rules import FolderRules
from kbproc.knowledge.cluster import joining, purging
from kbproc.knowledge.cluster.alone import LogKind, Node
from kbproc.knowledge.cluster.arrivals import Arrivals
from kbproc.knowledge.cluster.node import ClusterKind, ClusterNode
from kbproc.knowledge.cluster.notes import NodeFolderRules
from kbproc.knowledge.cluster.purging import NodePurgeRules
from kbproc.knowledge.cluster.together import Together
from kbproc.knowledge.history import forgotten, purge
from kbproc.knowledge.history.forgotten import Forgotten
from kbproc.knowledge.history.purge import PurgeRules, RewriteExtent
from kbproc.knowledge.sessions.rules import AnswerRules
from tests.kit.patience import PATIENCE

TABLE = {"kind": "jetstream", "servers": ["nats://a:1"], "stream": "team", "node": "one"}


class FakeLog:
    """A node's copy of a log."""

    def __init__(self) -> None:
        self.erased_seq = 0
        self.known_seq = 7
        self.damage: str | None = None
        self.trouble: str | None = None
        self.remedy = "Mend it."
        self.head = SimpleNamespace(seq=5, hash="ab")
        self.records: list[Any] = []
        self.forgets: list[tuple[list[str], int]] = []
        self.fault: KbprocError | None = None
        self.tell: Any = None

    def read(self, *, to_seq: int) -> list[Any]:
        return self.records

    def forget(self, sources: list[str], to_seq: int) -> None:
        if self.fault is not None:
            raise self.fault
        self.forgets.append((list(sources), to_seq))

    def on_news(self, tell: Any) -> None:
        self.tell = tell


class FakeStore:
    """A store with this log, in a folder; `ended` purges are those that the log says are over."""

    def __init__(self, folder: Path, log: FakeLog) -> None:
        self.folder = folder
        self.log = log
        self.settings = {"log": TABLE}
        self.read_only = False
        self.commits = 0
        self.unended: list[tuple[int, int]] = []
        queries = SimpleNamespace(
            being_answered=lambda: self.unended, matching_records=lambda *filters: []
        )
        self._snapshot = SimpleNamespace(queries=queries)

    @contextlib.contextmanager
    def reading(self) -> Iterator[Any]:
        yield self._snapshot

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        yield

    def commit(self, work: Any) -> None:
        work(None)
        self.commits += 1


@pytest.fixture
def log() -> FakeLog:
    return FakeLog()


@pytest.fixture
def store(tmp_path: Path, log: FakeLog) -> FakeStore:
    return FakeStore(tmp_path, log)


def library_of(store: FakeStore) -> Any:
    recoveries: list[str] = []
    return SimpleNamespace(
        store=store, recover_answers=lambda: recoveries.append("recovered"), recoveries=recoveries
    )


# ------------------------------------------------------------------------ alone


def test_a_process_alone_has_the_plain_rules_and_nothing_to_say(store: FakeStore) -> None:
    node = Node(library_of(store))
    rules = (type(node.folders), type(node.purges), type(node.answers))
    assert rules == (FolderRules, PurgeRules, AnswerRules)
    assert list(node.findings()) == []
    status = node.status()
    assert (status["shared"], status["seq"], status["stream_seq"]) == (False, 5, 5)
    assert (status["connected"], status["problem"], status["servers"]) == (False, None, [])


@pytest.mark.parametrize(
    ("unended", "damage", "recoveries"),
    [([(1, 2)], None, ["recovered"]), ([], None, []), ([(1, 2)], "cut off", [])],
)
def test_unended_answers_end_when_a_sound_store_is_opened(
    store: FakeStore, log: FakeLog, unended: Any, damage: str | None, recoveries: list[str]
) -> None:
    store.unended, log.damage = unended, damage
    library = library_of(store)
    Node(library).opened()
    assert library.recoveries == recoveries


def test_a_log_alone_is_the_folders_only_copy(tmp_path: Path) -> None:
    kind = LogKind()
    opened = kind.open_log(tmp_path / "log", START, marks=tmp_path / "marks", settings={})
    assert isinstance(opened, FileLog)
    opened.close()
    assert kind.drop_copy(tmp_path) is None


# ------------------------------------------------------------------------- node


def test_a_node_says_how_far_it_is_and_what_is_wrong(store: FakeStore, log: FakeLog) -> None:
    node = ClusterNode(library_of(store), cast(Any, log))
    assert type(node.folders) is NodeFolderRules
    status = node.status()
    assert (status["shared"], status["stream"], status["servers"]) == (
        True,
        "team",
        ["nats://a:1"],
    )
    assert (status["seq"], status["stream_seq"], status["connected"]) == (5, 7, True)
    (finding,) = node.findings()
    assert (finding.status, finding.message) == ("pass", "record 5 of 7 of the stream team")
    log.trouble = "no server answers"
    (finding,) = node.findings()
    assert (finding.status, finding.message) == (
        "warn",
        "record 5 of 7 of the stream team; no server answers",
    )
    log.damage = "a record is missing"
    (finding,) = node.findings()
    assert (finding.status, finding.hint) == ("fail", "Mend it.")
    assert (node.status()["connected"], node.status()["problem"]) == (False, "a record is missing")
    node.retire()
    node.close()


@pytest.mark.parametrize(("count", "jobs"), [(1, "1 job is"), (2, "2 jobs are")])
def test_jobs_that_workers_gave_up_are_counted_with_the_last_reason(
    store: FakeStore, log: FakeLog, monkeypatch: pytest.MonkeyPatch, count: int, jobs: str
) -> None:
    node = ClusterNode(library_of(store), cast(Any, log))
    facts = {"workers": 3, "dead_jobs": count, "dead_why": "odd"}
    monkeypatch.setattr(node.together, "facts", lambda: facts)
    assert node.status()["workers"] == 3
    _, finding = node.findings()
    assert (finding.name, finding.status) == ("workers", "warn")
    assert finding.message == f"{jobs} on the list of failed jobs; the last one: odd"


def test_a_damaged_copy_is_dropped_with_its_position(tmp_path: Path) -> None:
    forgotten.keep(tmp_path, Forgotten(seq=3))
    comes, hint = ClusterKind().drop_copy(tmp_path) or ("", "")
    assert comes == "the cluster's log is read again once a server can be reached"
    assert "kbproc cluster status" in hint
    assert forgotten.read(tmp_path) is None


# ---------------------------------------------------------------------- purging


def rules_of(store: FakeStore) -> NodePurgeRules:
    return NodePurgeRules(cast(Any, store.log), cast(Any, store))


def test_a_node_goes_on_after_the_position_that_it_has_erased_to(
    store: FakeStore, log: FakeLog
) -> None:
    forgotten.keep(store.folder, Forgotten(seq=4))
    rules = rules_of(store)
    assert log.erased_seq == 4

    def purges_after(seq: int) -> list[int]:
        return [seq + 1]

    queries: Any = SimpleNamespace(purges_after=purges_after)
    assert list(rules.unfinished(queries, Forgotten(seq=4))) == [5]
    assert list(rules.unfinished(queries, None)) == [1]
    records: Any = [SimpleNamespace(seq=5), SimpleNamespace(seq=9)]
    assert rules.extent(records, 100) == RewriteExtent(8, frozenset({5, 9}))
    rules.erased_here(cast(Any, store), 9)
    assert log.erased_seq == 9


def test_sources_and_keys_to_erase_are_stored_beside_the_earlier_ones(store: FakeStore) -> None:
    rules = rules_of(store)
    forgotten.keep(store.folder, Forgotten(seq=2, due=1, sources=["b"], keys=["ff"]))
    pack = SimpleNamespace(key=lambda string: string.encode())
    embedding = SimpleNamespace(pack=pack, string_of=lambda title, section, text: text)
    unused_strings = {("T", None, "k"), ("T", None, "l")}
    trace = SimpleNamespace(unused_sources={"a", "b"}, unused_strings=unused_strings)
    rules.store_due(
        cast(Any, SimpleNamespace(store=store, embedding=embedding)), cast(Any, trace), 7
    )
    assert forgotten.read(store.folder) == Forgotten(
        seq=2, due=7, sources=["a", "b"], keys=["6b", "6c", "ff"]
    )


def parts_of(store: FakeStore) -> Any:
    return SimpleNamespace(store=store)


def test_a_due_purge_leaves_the_cluster_and_its_end_is_recorded(
    store: FakeStore, log: FakeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends: list[int] = []
    monkeypatch.setattr(purge, "record_end", lambda store, due: ends.append(due))
    event = DocWritten(
        id=1,
        kb="default",
        revision=1,
        title="T",
        doc_type="text",
        source_sha256="held",
        size_bytes=1,
        first_chunk=1,
        chunks=[],
        parser=1,
        origin="user",
    )
    log.records = [SimpleNamespace(events=codec.encode([event]))]
    rules = rules_of(store)
    for position in (None, Forgotten(seq=9), Forgotten(seq=6, due=7, sources=["x"])):
        if position is not None:
            forgotten.keep(store.folder, position)
        rules.end(parts_of(store), [])
    assert (ends, log.forgets) == ([], []), "nothing is due, or this folder is not erased yet"
    forgotten.keep(store.folder, Forgotten(seq=7, due=7, sources=["held", "gone"]))
    rules.end(parts_of(store), [])
    assert (ends, log.forgets) == ([7], [(["gone"], 7)]), "a document still holds the other source"
    assert forgotten.read(store.folder) == Forgotten(seq=7)


def test_a_cluster_that_can_not_be_reached_keeps_the_purge_due(
    store: FakeStore, log: FakeLog
) -> None:
    due = Forgotten(seq=7, due=7, sources=["gone"])
    forgotten.keep(store.folder, due)
    rules = rules_of(store)
    log.fault = KbprocError("store.io", "No server answers.")
    with pytest.raises(KbprocError) as error:
        rules.end(parts_of(store), [])
    assert (error.value.type, error.value.message) == (
        "store.io",
        "This node has erased the data, but the cluster may still hold it: No server answers.",
    )
    assert forgotten.read(store.folder) == due
    other = FakeStore(store.folder, FakeLog())
    rules.end(parts_of(other), [])  # the store has left the cluster
    assert forgotten.read(store.folder) == due


def test_another_nodes_purge_is_ended_here_only_after_a_while(
    store: FakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(purging, "time", SimpleNamespace(monotonic=lambda: now[0]))
    rules = rules_of(store)
    assert rules.end_due(parts_of(store)) is None
    forgotten.keep(store.folder, Forgotten(seq=6, due=7))
    assert rules.end_due(parts_of(store)) == 0.5
    now[0] += 4.9
    assert rules.end_due(parts_of(store)) == 0.5
    now[0] += 0.2
    assert rules.end_due(parts_of(store)) is None


# --------------------------------------------------------------------- arrivals


def test_records_of_others_are_applied_and_unfinished_work_begins_once(
    store: FakeStore, log: FakeLog
) -> None:
    steps: list[str] = []
    has_rested = threading.Semaphore(0)

    def rest() -> float | None:
        steps.append("rest")
        has_rested.release()
        return None

    follower = Arrivals(
        cast(Any, store), cast(Any, log), begin=lambda: steps.append("begin"), rest=rest
    )
    follower.start()
    assert has_rested.acquire(timeout=PATIENCE)
    log.tell()
    assert has_rested.acquire(timeout=PATIENCE)
    follower.close()
    assert (steps, store.commits) == (["begin", "rest", "rest"], 2)
    follower.start()
    log.tell()
    assert store.commits == 2, "it has ended"


def test_nothing_else_happens_until_unfinished_work_has_begun(
    store: FakeStore, log: FakeLog
) -> None:
    has_begun = threading.Event()
    rests: list[str] = []

    def begin() -> None:
        has_begun.set()
        raise KbprocError("store.io", "Away.")

    follower = Arrivals(
        cast(Any, store), cast(Any, log), begin=begin, rest=lambda: rests.append("rest")
    )
    follower.start()
    assert has_begun.wait(PATIENCE)
    follower.close()
    assert rests == []


# --------------------------------------------------------------------- together


class Sharing:
    """A share that notes its start and its end."""

    instances: list[Sharing] = []

    def __init__(self, store: Any, log: Any, embedding: Any, settings: Any) -> None:
        self.embedding = embedding
        self.lending = object()
        self.steps: list[str] = []
        self.workers = 2
        self.dead = SimpleNamespace(jobs=1, why="odd")
        Sharing.instances.append(self)

    def start(self) -> None:
        self.steps.append("start")

    def close(self) -> None:
        self.steps.append("close")


def test_a_nodes_share_follows_the_model_of_the_store(
    store: FakeStore, log: FakeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kbproc.engine.cluster.work.node.Sharing", Sharing)
    monkeypatch.setattr(Sharing, "instances", [])
    embedding = SimpleNamespace(state="ready")
    parsers = SimpleNamespace(others=None)
    together = Together(
        cast(Any, store), cast(Any, log), lambda: cast(Any, embedding), lambda: cast(Any, parsers)
    )
    assert together.facts() == {"workers": 0, "dead_jobs": 0, "dead_why": None}
    together.follow()
    together.follow()
    (first,) = Sharing.instances
    assert (first.steps, parsers.others) == (["start"], first.lending)
    assert together.facts() == {"workers": 2, "dead_jobs": 1, "dead_why": "odd"}
    embedding = SimpleNamespace(state="ready")
    together.follow()
    assert (first.steps, len(Sharing.instances)) == (["start", "close"], 2)
    embedding = SimpleNamespace(state="off")
    together.follow()
    assert (Sharing.instances[1].steps, parsers.others) == (["start", "close"], None)
    together.close()
    embedding = SimpleNamespace(state="ready")
    together.follow()
    assert len(Sharing.instances) == 2, "it is closed"


# ---------------------------------------------------------------------- joining


def test_an_interrupted_change_of_the_log_is_taken_back(tmp_path: Path) -> None:
    for name in ("views", "log", "log.joining", "sources"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
    names = {"views", "log", "log.joining", "sources"}
    joining.finish(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == names, "there is no mark"
    joining.begin(tmp_path)
    joining.finish(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"sources"}
    joining.begin(tmp_path)
    joining.end(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"sources"}
