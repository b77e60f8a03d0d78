"""A store's model says its state without being loaded, and keeps each vector that it computed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from kbproc.base.errors import KbprocError
from kbproc.engine.embedding.model import StoredModel
from kbproc.engine.embedding.parsers import Parsers, pool_for
from kbproc.engine.embedding.past import PastModel
from kbproc.engine.embedding.status import Pending, Statuses
from kbproc.engine.models.fluency import FLUENT
from kbproc.engine.projections.catalog.rows import IndexRow
from kbproc.engine.sources.parse.formats import NO_OPTIONS, ReadOptions
from kbproc.engine.sources.parse.worker import ParserJob
from kbproc.engine.store.state import NoModel, StoreModel
from tests.kit.patience import PATIENCE

HASH = {"kind": "hash", "name": "hash"}


@pytest.fixture
def model(tmp_path: Path) -> Iterator[StoredModel]:
    model = StoredModel(tmp_path / "store", HASH, tmp_path / "cache")
    yield model
    model.release()


def row(text: str) -> IndexRow:
    return IndexRow(1, 1, "default", "Title", None, text)


# ------------------------------------------------------------------------ model


def test_a_model_is_ready_before_it_is_loaded(model: StoredModel, tmp_path: Path) -> None:
    assert (model.state, model.model_name, model.problem) == ("ready", "hash", None)
    assert model.is_prepared and model.status_when_new == "pending"
    assert model.dim is not None and model.fingerprint is not None
    assert not (tmp_path / "store").exists(), "its pack is opened at the first use"
    assert model.pack is not None and model.pack.fingerprint.hex() == model.fingerprint
    assert model.pack is model.pack
    model.prepare()
    assert model.load() is model.load()


@pytest.mark.parametrize(
    ("settings", "problem", "state", "reason"),
    [
        ({"kind": "none", "name": "none"}, None, "off", "No embedding model is configured."),
        (HASH, KbprocError("model.unavailable", "Barred."), "missing", "Barred."),
        (
            {"kind": "openai", "name": "m", "url": "http://127.0.0.1:9"},
            None,
            "not ready",
            "The embedding model is being prepared.",
        ),
        ({"kind": "openai", "name": "m"}, None, "missing", "The model's url is not set."),
    ],
)
def test_a_model_that_can_not_be_used_gives_no_vector_and_says_why(
    tmp_path: Path,
    settings: dict[str, Any],
    problem: KbprocError | None,
    state: str,
    reason: str,
) -> None:
    model = StoredModel(tmp_path, settings, tmp_path / "cache", problem)
    assert (model.state, model.is_barred) == (state, problem is not None)
    assert (model.pack, model.dim, model.fingerprint) == (None, None, None)
    assert model.max_tokens == 256
    assert model.kept(["a", "b"]) == [None, None]
    assert model.query_vector("x") == (None, reason)
    model.release()


def test_settings_of_no_model_are_refused(tmp_path: Path) -> None:
    with pytest.raises(KbprocError) as error:
        StoredModel(tmp_path, {"kind": "magic", "name": "x"}, tmp_path)
    assert error.value.type == "input.invalid_params"


def test_a_vector_is_stored_by_the_exact_string_and_can_be_brought_elsewhere(
    model: StoredModel, tmp_path: Path
) -> None:
    one, other = row("Herons fish."), row("Bread rises.")
    string = model.string(one)
    assert string == model.string_of("Title", None, "Herons fish.")
    vector = model.load().embed(string)
    model.problem = KbprocError("store.io", "The disk is full.")
    keys = model.keep([one], [vector])
    assert model.pack is not None and keys == [model.pack.key(string)]
    assert model.problem is None
    halves = model.kept([string, model.string(other)])
    assert halves == [vector.astype("<f2").tobytes(), None]
    assert model.keep([], []) == []

    second = StoredModel(tmp_path / "second", HASH, tmp_path / "cache")
    assert halves[0] is not None
    second.bring({string: halves[0]})
    second.fold({})
    assert second.kept([string]) == [halves[0]]
    second.release()


def test_a_query_has_a_unit_vector(model: StoredModel) -> None:
    vector, reason = model.query_vector("herons")
    assert vector is not None and reason is None
    assert float(np.linalg.norm(vector)) == pytest.approx(1.0, abs=1e-3)


def test_without_a_model_nothing_is_pending_and_nothing_is_stored() -> None:
    model = NoModel()
    assert model.query_vector("x") == (None, "No embedding model is configured.")
    assert model.fluency("x") == FLUENT
    assert model.status_of(1) == "ready" and model.pending_documents() == {}
    assert model.ids_with_status(None) == model.ids_with_status("ready") == {}
    assert model.ids_with_status("pending") == model.ids_with_status("failed") == {"ids": []}
    model.bring({"a": b"x"})
    assert model.kept(["a"]) == [None]
    with model.searching():
        pass


# --------------------------------------------------------------------- statuses


class Chunks(Statuses):
    """Statuses of documents with these pending chunks, of which the model refuses some."""

    def __init__(self, pending: dict[int, int], failed: dict[int, str] | None = None) -> None:
        self._pending, self._failed = pending, failed or {}

    def waits(self, document_id: int) -> bool:
        return document_id in self._pending

    def pending_documents(self) -> dict[int, int]:
        return self._pending

    @property
    def failed_documents(self) -> dict[int, str]:
        return self._failed


def test_a_document_is_pending_until_its_last_chunk_has_a_vector_or_it_fails() -> None:
    statuses = Chunks({2: 1, 3: 4}, {3: "too long"})
    assert [statuses.status_of(id) for id in (1, 2, 3)] == ["ready", "pending", "failed"]
    assert statuses.ids_with_status(None) == {}
    assert statuses.ids_with_status("pending") == {"ids": [2]}
    assert statuses.ids_with_status("failed") == {"ids": [3]}
    assert statuses.ids_with_status("ready") == {"not_ids": [2, 3]}
    assert Chunks({}).ids_with_status("ready") == {"not_ids": []}


def test_pending_chunks_are_counted_for_the_selected_documents() -> None:
    chunks = {1: 2, 2: 3, 3: 5}
    every = Pending(Chunks({2: 1, 3: 4}), chunks, None)
    assert (every.documents, every.chunks, every.pending()) == (3, 10, 5)
    some = Pending(Chunks({2: 1, 3: 4}), chunks, [1, 2, 9])
    assert (some.documents, some.chunks, some.pending()) == (3, 5, 1)
    nothing = Pending(Chunks({2: 1}), chunks, [])
    assert (nothing.documents, nothing.chunks, nothing.pending()) == (0, 0, 0)


def test_waiting_for_a_document_that_the_model_refuses_is_an_error() -> None:
    statuses = Chunks({2: 1}, {5: "too long", 3: "odd"})
    with pytest.raises(KbprocError) as error:
        Pending(statuses, {2: 1}, None).pending()
    assert error.value.type == "operation.failed"
    assert error.value.message == "Document 5 could not be embedded: too long"
    assert error.value.detail == {"failed": [3, 5]}
    assert Pending(statuses, {2: 1}, [2]).pending() == 1, "others do not matter"


def test_a_model_that_is_away_is_an_error_only_while_chunks_wait() -> None:
    statuses = Chunks({2: 1})
    statuses.problem = KbprocError("model.unavailable", "Away.")
    with pytest.raises(KbprocError) as error:
        Pending(statuses, {2: 1}, None).pending()
    assert error.value is statuses.problem
    assert Pending(statuses, {1: 1}, [1]).pending() == 0


def test_the_past_has_the_vectors_of_its_own_documents() -> None:
    live = cast(StoreModel, NoModel())
    vectors: Any = SimpleNamespace(
        waits=lambda id: id == 2,
        pending_by_document=lambda: {2: 3},
        pending_count=3,
        snapshot=lambda: SimpleNamespace(vector_seq=4),
    )
    past = PastModel(live, vectors, 9)
    assert (past.status_of(1), past.status_of(2), past.status_when_new) == (
        "ready",
        "pending",
        "ready",
    )
    assert (past.pending_documents(), past.pending_count, past.vector_seq) == ({2: 3}, 3, 4)
    bare = PastModel(live, None, 9)
    assert (bare.waits(2), bare.pending_documents(), bare.pending_count) == (False, {}, 0)
    assert bare.vector_seq == 9, "nothing waits, so everything is embedded"


# ---------------------------------------------------------------------- parsers


class Pool:
    """Parses a document into its name; with `gate`, those of `t…` only once it is open."""

    def __init__(self, gate: threading.Event | None = None) -> None:
        self.gate = gate
        self.names: list[str] = []
        self.has_begun = threading.Semaphore(0)
        self.has_retired = threading.Event()
        self.is_closed = False

    def parse(self, jobs: list[ParserJob], *more: Any) -> Any:
        name = jobs[0].name
        self.names.append(name)
        self.has_begun.release()
        if self.gate is not None and name.startswith("t"):
            self.gate.wait()
        return [f"here: {job.name}" for job in jobs]

    def close(self) -> None:
        self.is_closed = True

    def retire(self) -> None:
        self.has_retired.set()


def job(data: bytes, type: str, name: str, options: ReadOptions = NO_OPTIONS) -> ParserJob:
    return ParserJob(data=data, type=type, name=name, title=None, options=options)


class Others:
    """Other machines, which parse every document but one that is called "busy"."""

    def read(self, data: bytes, type: str, name: str, title: str | None) -> Any:
        return None if name == "busy" else f"there: {name}"


def test_other_machines_parse_large_documents_while_all_processes_are_busy() -> None:
    gate = threading.Event()
    pool = Pool(gate)
    parsers = Parsers(cast(Any, lambda: pool))
    parsers.others = Others()
    threads = [
        threading.Thread(target=parsers.parse, args=[[job(b"", "text", f"t{n}")]], daemon=True)
        for n in range(2)
    ]
    for thread in threads:
        thread.start()
        assert pool.has_begun.acquire(timeout=PATIENCE)
    large = b"x" * (32 << 10)
    parse: Any = parsers.parse
    try:
        assert parse([job(large, "text", "a")]) == ["there: a"]
        several = [job(large, "text", name) for name in "ab"]
        assert parse(several) == ["here: a", "here: b"], "they are short, and go together"
    finally:
        gate.set()
    for thread in threads:
        thread.join()
    assert parse([job(large, "text", "b")]) == ["here: b"], "a process is idle"


@pytest.mark.parametrize(
    ("size", "type", "name", "options"),
    [
        ((32 << 10) - 1, "text", "small", ReadOptions()),
        (32 << 10, "mail", "holder", ReadOptions()),
        (32 << 10, "text", "ocr", ReadOptions(ocr="eng")),
        (32 << 10, "text", "redact", ReadOptions(redact=True)),
        (32 << 10, "text", "busy", ReadOptions()),
    ],
)
def test_what_a_worker_can_not_parse_is_parsed_here(
    size: int, type: str, name: str, options: ReadOptions
) -> None:
    gate = threading.Event()
    pool = Pool(gate)
    parsers = Parsers(cast(Any, lambda: pool))
    parsers.others = Others()
    blockers = [
        threading.Thread(target=parsers.parse, args=[[job(b"", "text", "t")]], daemon=True)
        for _ in range(2)
    ]
    for thread in blockers:
        thread.start()
        assert pool.has_begun.acquire(timeout=PATIENCE)
    parse: Any = parsers.parse
    try:
        assert parse([job(b"x" * size, type, name, options)]) == [f"here: {name}"]
    finally:
        gate.set()
    for thread in blockers:
        thread.join()


def test_one_pool_is_started_at_a_time(model: StoredModel) -> None:
    pools: list[Pool] = []

    def start() -> Any:
        pools.append(Pool())
        return pools[-1]

    parsers = Parsers(start)
    parsers.close()
    first: Any = parsers.get()
    assert first is parsers.get() and first is pools[0]
    some: Any = parsers.parse([job(b"", "text", name) for name in "ab"])
    assert some == ["here: a", "here: b"]
    parsers.retire()
    assert pools[0].has_retired.wait(PATIENCE)
    second: Any = parsers.get()
    assert second is pools[1]
    parsers.close()
    assert [one.is_closed for one in pools] == [False, True]
    pool = pool_for(model)
    pool.close()
