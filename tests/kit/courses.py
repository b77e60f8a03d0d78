"""Runs courses of requests in this thread, and checks what a crash in the midst of one has left."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kbproc.base.errors import KbprocError
from kbproc.base.settings.trust import Trust
from kbproc.engine.embedding.background import rows_of
from kbproc.engine.events import codec
from kbproc.engine.events.document import DocWritten
from kbproc.engine.log.file import FileLog
from kbproc.engine.log.interface import Log
from kbproc.engine.log.record import START, Position, Record
from kbproc.engine.projections.catalog.catalog import Catalog
from kbproc.engine.sources.blobs import Blobs
from kbproc.engine.store import restore
from kbproc.knowledge.app.health import doctor
from kbproc.knowledge.app.library import Library
from kbproc.knowledge.history import purge
from kbproc.methods.all import registry
from kbproc.methods.calls.call import Call, Peer
from kbproc.methods.calls.reply import Answer, Parked
from kbproc.methods.calls.run import run
from tests.kit.crashes import (
    Disk,
    Fault,
    Holes,
    Lost,
    Mixed,
    Model,
    Op,
    Recorder,
    Torn,
    Tree,
    copy_views,
    has_hole,
    holds,
    write_tree,
)
from tests.kit.fixed import FixedHost, model_of
from tests.kit.patience import until

METHODS = registry().loaded()


class Client:
    """An open store, whose requests run in this thread; nothing runs in the background."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.host = FixedHost()
        self.library = Library.open(
            folder / "store",
            host=self.host,
            cache=folder / "cache",
            model=model_of("hash"),
            trust=Trust(folder / "trusted.json"),
        )
        self._peer = Peer(
            actor="user",
            scopes=frozenset(METHODS.scopes),
            cwd=folder.parent,
            root=folder.parent,
            kb="default",
        )

    def ask(self, method: str, /, **params: Any) -> Any:
        """Returns a request's data; approves of its plan. Raises KbprocError."""
        try:
            return self._ask(method, params)
        except KbprocError as error:
            if error.type != "input.confirmation_required" or error.plan is None:
                raise
            return self._ask(method, {**params, "confirm": error.plan.plan_hash})

    def _ask(self, method: str, params: dict[str, Any]) -> Any:
        call = Call(
            registry=METHODS,
            host=self.host,
            peer=self._peer,
            open_library=lambda: self.library,
            emit=lambda name, fields: None,
            now=self.host.now(),
        )
        outcome = run(call, method, json.dumps(params).encode())
        while not isinstance(outcome, Answer):
            if isinstance(outcome, Parked):
                until(outcome.ready, method)
                outcome = outcome.resume()
            else:
                outcome = outcome.end()
        return outcome.data

    def embed(self) -> None:
        """Gives every chunk its vector."""
        store, embedding = self.library.store, self.library.embedding
        embedding.prepare()
        if store.vectors is None:
            store.attach_vectors()
        assert store.vectors is not None
        if pending := list(store.vectors.pending()):
            embedding.embed_into(store.vectors, rows_of(store, pending))

    def close(self) -> None:
        self.library.close()


class Step(NamedTuple):
    """A request of a course, with its token. `purges`: words that its answer erases for good.

    The method `embed` is that of `Client`, `open` closes the store and opens it again, `tidy` is
    its upkeep, and `write` writes a file.
    """

    method: str
    params: dict[str, Any] = {}
    purges: tuple[str, ...] = ()


class Mark(NamedTuple):
    """The step's first and last call of those recorded, and the log's end after its answer."""

    begin: int
    end: int
    seq: int


class Views(NamedTuple):
    """A copy of the projections after some calls; without a folder they are gone.

    `sources_seq`: up to which their catalog says that sources are durable. `ends_purge`: a purge
    has made them afresh, and earlier ones are gone for good.
    """

    calls: int
    position: Position
    sources_seq: int
    folder: Path | None
    ends_purge: bool = False


class Recording(NamedTuple):
    """The calls of a course; the positions of `records` are those of the log at its end."""

    steps: Sequence[Step]
    ops: list[Op]
    marks: list[Mark]
    views: list[Views]
    records: list[Position]


def perform(client: Client, step: Step, number: int) -> None:
    """Takes a step other than `open`. Raises KbprocError."""
    if step.method in {"embed", "tidy"}:
        {"embed": client.embed, "tidy": client.library.tidy}[step.method]()
    elif step.method == "write":
        (client.folder.parent / step.params["name"]).write_text(step.params["text"])
    elif step.method == "aside":
        try:
            step.params["do"](client)
        except OSError as error:
            raise KbprocError("store.io", str(error)) from error
    else:
        client.ask(step.method, **_params(step, number))


def _params(step: Step, number: int) -> dict[str, Any]:
    return {**step.params, "client_token": f"step-{number}"}


def record(folder: Path, steps: Sequence[Step]) -> Recording:
    """Takes the steps in a new store in `folder`, each of which must succeed."""
    root = folder / "disk"
    root.mkdir(parents=True)
    recorder = Recorder(root)
    marks, views = list[Mark](), list[Views]()

    def copy(*, ends_purge: bool = False) -> None:
        store, target = client.library.store, folder / f"views-{len(views)}"
        position, sources_seq = store.catalog.position, store.catalog.sources_seq
        copy_views(store.folder, target)
        views.append(Views(len(recorder.ops), position, sources_seq, target, ends_purge))

    def reach(point: str) -> None:
        if point == "purge.views":
            copy(ends_purge=True)

    with pytest.MonkeyPatch.context() as patch, recorder.recording():
        patch.setattr(purge, "reach", reach)
        begin, client = 0, Client(root)
        for number, step in enumerate(steps):
            if step.method == "open":
                client.close()
                client = Client(root)
            else:
                perform(client, step, number)
            marks.append(Mark(begin, len(recorder.ops), client.library.store.log.head.seq))
            begin = len(recorder.ops)
            copy()
        client.close()
    records = positions_of(root / "store")
    return Recording(steps, recorder.ops, marks, views, records)


def positions_of(store: Path) -> list[Position]:
    with closing(FileLog.open(store / "log")) as log:
        return [record.position for record in log.read()]


# ------------------------------------------------------------------------ after a crash


class Crash(NamedTuple):
    """A crash after so many calls of a recording, and what it has left."""

    recording: Recording
    calls: int
    tree: Tree
    views: Views

    @property
    def _answered(self) -> int:
        """The number of steps that were answered."""
        return sum(mark.end <= self.calls for mark in self.recording.marks)

    @property
    def least(self) -> int:
        """The seq up to which the log was acknowledged."""
        answered = self._answered
        return self.recording.marks[answered - 1].seq if answered else 0

    @property
    def most(self) -> int:
        """The seq up to which it may be."""
        marks = self.recording.marks
        return marks[min(self._answered, len(marks) - 1)].seq

    @property
    def purged(self) -> list[bytes]:
        """Words that no file may hold any more."""
        steps = self.recording.steps[: self._answered]
        return [word.encode() for step in steps for word in step.purges]

    @property
    def being_purged(self) -> list[bytes]:
        """Words of a purge that was not answered."""
        steps = self.recording.steps[self._answered : self._answered + 1]
        return [word.encode() for step in steps for word in step.purges]

    @property
    def is_answering(self) -> bool:
        """True in the midst of an answer: the next opening records that it has stopped."""
        steps = self.recording.steps[self._answered : self._answered + 1]
        return any(step.method == "session.ask" for step in steps)

    @property
    def is_erasing(self) -> bool:
        """True in the midst of a purge: the next opening goes on with it."""
        steps = self.recording.steps[self._answered : self._answered + 1]
        return any(step.method in {"store.purge", "store.compact"} for step in steps)

    @property
    def is_undecidable(self) -> bool:
        """True if the log has a hole, and no view says what of it was acknowledged."""
        return self.views.position == START and has_hole(self.tree, "store/log/")

    def build(self, folder: Path) -> None:
        """Makes the folder that the crash has left."""
        write_tree(self.tree, folder)
        if self.views.folder is not None and (folder / "store").is_dir():
            shutil.copytree(self.views.folder, folder / "store" / "views", dirs_exist_ok=True)


def views_after(recording: Recording, calls: int, choose: Callable[[list[Views]], Views]) -> Views:
    """Returns a copy of the projections from before the crash, or none."""
    copies = [copy for copy in recording.views if copy.calls <= calls]
    first = max((n for n, copy in enumerate(copies) if copy.ends_purge), default=0)
    return choose([*copies[first:], Views(0, START, 0, None)])


def check_log(crash: Crash, folder: Path) -> None:
    """Opens log and sources alone after a crash, and asserts what both must hold."""
    write_tree(crash.tree, folder)
    store = folder / "store"
    if not (store / "log").is_dir():
        assert not crash.least, "the log is gone"
        return
    applied = crash.views.position
    if crash.is_undecidable:
        assert_damaged(lambda: FileLog.open(store / "log", applied))
        return
    with closing(FileLog.open(store / "log", applied)) as log:
        records = list(log.read())
        assert_positions(crash, [record.position for record in records])
        blobs = Blobs(store)
        blobs.load()
        restore.sources(log, crash.views.sources_seq, blobs)
        names = set(named_sources(records))
        missing = blobs.broken(names, deep=True)
        assert not missing or crash.is_erasing, f"lost sources: {missing}"
        blobs.close()
    files = holds(folder, crash.purged)
    assert not files, f"{files} hold what was purged"


def assert_damaged(work: Callable[[], object]) -> None:
    with pytest.raises(KbprocError) as error:
        work()
    assert error.value.type == "store.corrupt", error.value


def assert_positions(crash: Crash, positions: list[Position]) -> None:
    """Asserts that the log has what was acknowledged and nothing that was not asked for."""
    least, most, reference = crash.least, crash.most, crash.recording.records
    assert len(positions) >= least, f"the log ends at {len(positions)}, not at {least} or later"
    most = least if crash.is_erasing or crash.is_answering else most
    assert positions[:most] == reference[: len(positions)][:most], "other records than asked for"


def named_sources(records: Sequence[Record]) -> Iterator[str]:
    for record in records:
        for event in codec.decode(record.events):
            if isinstance(event, DocWritten) and event.source_sha256:
                yield event.source_sha256


def check_store(crash: Crash, folder: Path, bench: Catalog) -> None:
    """Opens the whole store after a crash, and asserts what it must hold."""
    crash.build(folder)
    if not (folder / "store" / "log").is_dir():
        assert not crash.least, "the log is gone"
    if crash.is_undecidable:
        assert_damaged(lambda: Client(folder))
        return
    client = Client(folder)
    try:
        check_open(client, bench)
        assert_positions(crash, [record.position for record in client.library.store.log.read()])
        words = [*crash.purged, *_purged_by_now(crash, client)]
    finally:
        client.close()
    files = holds(folder, words)
    assert not files, f"{files} hold what was purged"
    seq = client.library.store.log.head.seq
    with closing(FileLog.open(folder / "store" / "log")) as log:  # a second opening is clean
        assert log.verify() == seq


def _purged_by_now(crash: Crash, client: Client) -> list[bytes]:
    """Returns the words of an unanswered purge if its record is there."""
    has_begun = client.library.store.log.head.seq > crash.least
    return crash.being_purged if has_begun else []


def check_open(client: Client, bench: Catalog) -> None:
    comparison = doctor.compare(client.library.store, bench)
    assert not any(comparison.values()), f"{comparison}"
    findings = client.ask("doctor", deep=True).findings
    failures = [one for one in findings if one.status == "fail"]
    assert not failures, f"{failures}"


# ------------------------------------------------------------------------ every crash


def crashes(
    recording: Recording, models: Callable[[int], Sequence[Model]], seed: int = 0
) -> Iterator[tuple[str, Crash]]:
    """Yields what a crash after each call leaves under each of the models, each state once.

    The name tells how to get the same one again.
    """
    disk, states = Disk(), set[int]()
    for calls, op in enumerate(recording.ops, 1):
        disk.apply(op)
        for number, model in enumerate(models(calls)):
            chance = random.Random(f"{seed} {calls} {number}")
            views = views_after(recording, calls, partial(_chosen, chance))
            crash = Crash(recording, calls, disk.tree(model), views)
            applied = (views.position, views.sources_seq)
            state = hash((frozenset(crash.tree.items()), crash.least, crash.most, applied))
            if state not in states:
                states.add(state)
                yield f"call {calls} ({op.kind} {op.name}), model {number}, seed {seed}", crash


def _chosen(chance: random.Random, copies: list[Views]) -> Views:
    """Returns the newest copy, an earlier one or none, which comes last."""
    return copies[-2:][0] if chance.random() < 0.5 else chance.choice(copies)


def models_of(seed: int) -> Callable[[int], Sequence[Model]]:
    """Returns a function that chooses the models after so many calls."""

    def choose(calls: int) -> Sequence[Model]:
        chance = random.Random(f"{seed} {calls}")
        torn = Torn(chance.random(), has_zeros=calls % 2 == 0, at_sector=calls % 3 == 0)
        return (Model(), Lost(), torn, Holes(chance), Mixed(f"{seed} {calls}"))

    return choose


# ------------------------------------------------------------------------ a disk that refuses


class Refusal(NamedTuple):
    """A step that was refused, after so many recorded calls; `head`: the log's end by then."""

    calls: int
    number: int
    head: Position


class Endurance(NamedTuple):
    """A course on a disk that refused some calls."""

    ops: list[Op]
    refusals: list[Refusal]


LONG_WRITES = {
    *("doc.ingest", "store.purge", "store.compact", "model.use", "events.revert", "session.ask"),
}
_TRIES = 4


def endure(
    folder: Path, steps: Sequence[Step], fault: Callable[[int, str], Fault | None]
) -> Endurance:
    """Takes the steps while calls are refused; sends again what was refused, until it is done."""
    root = folder / "disk"
    root.mkdir(parents=True)
    recorder, client, refusals = Recorder(root, fault), _Opener(root), list[Refusal]()
    with recorder.recording():
        for number, step in enumerate(steps):
            for tries in range(_TRIES + 1):
                try:
                    if tries > 1 or step.method == "open":
                        client.close()
                    if step.method != "open":
                        perform(client.opened(), step, number)
                    break
                except KbprocError as error:
                    assert error.type == "store.io", error
                    assert tries < _TRIES, f"{step} is refused again and again: {error.message}"
                    if client.client is not None and not (error.detail or {}).get("kept"):
                        log = client.client.library.store.log
                        assert_absent(log, step, number)
                        refusals.append(Refusal(len(recorder.ops), number, log.head))
        client.close()
    return Endurance(recorder.ops, refusals)


class _Opener:
    """A client that is opened when it is needed."""

    def __init__(self, folder: Path) -> None:
        self.client: Client | None = None
        self._folder = folder

    def opened(self) -> Client:
        """Returns the client. Raises KbprocError."""
        self.client = self.client or Client(self._folder)
        return self.client

    def close(self) -> None:
        client, self.client = self.client, None
        if client is not None:
            client.close()


def assert_absent(log: Log, step: Step, number: int) -> None:
    """Asserts that the log has no record of the refused step."""
    if step.method not in LONG_WRITES:
        assert f"step-{number}" not in {record.token for record in log.read()}


def check_refusals(endurance: Endurance, steps: Sequence[Step], folder: Path) -> None:
    """Asserts that a crash after a refusal brings nothing of the refused step back."""
    for refusal in endurance.refusals:
        disk = Disk()
        for op in endurance.ops[: refusal.calls]:
            disk.apply(op)
        for number, model in enumerate((Model(), Lost(), *map(Mixed, range(4)))):
            place = folder / f"{refusal.calls}-{refusal.number}-{number}"
            write_tree(disk.tree(model), place)
            if (place / "store" / "log").is_dir():
                with closing(FileLog.open(place / "store" / "log", refusal.head)) as log:
                    assert_absent(log, steps[refusal.number], refusal.number)


def check_end(folder: Path, steps: Sequence[Step], bench: Catalog) -> list[Any]:
    """Opens the store after a course; returns its documents, and asserts that each step is there.

    A step is there once: one record of its token holds its answer.
    """
    client = Client(folder / "disk")
    try:
        check_open(client, bench)
        answers = Counter(
            record.token
            for record in client.library.store.log.read()
            if record.token is not None and bytes(record.result) != b"null"
        )
        assert set(answers.values()) == {1}, answers
        return [(row.id, row.title, row.kb) for row in client.ask("doc.list")]
    finally:
        client.close()
