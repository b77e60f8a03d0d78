"""The pipeline of writes: exactly once, all or nothing, with true previews."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kbproc.base.errors import KbprocError
from kbproc.base.params import DestructiveParams, WriteParams
from kbproc.engine.events.event import Event
from kbproc.engine.events.kb import KbCreated, KbDeleted
from kbproc.engine.projections.catalog import folds
from kbproc.engine.store import pipeline
from kbproc.engine.store.decision import (
    Decide,
    Decision,
    DecisionState,
    PartialSuccess,
    WriteRequest,
)
from kbproc.engine.store.pipeline import LongWrite, Outcome
from kbproc.engine.store.store import Store
from kbproc.engine.store.target import Target
from tests.conftest import OpenSession
from tests.kit.patience import PATIENCE, until
from tests.kit.talk import Session


class Put(WriteParams, kw_only=True, frozen=True):
    slug: str
    name: str = "Name"


class Drop(DestructiveParams, kw_only=True, frozen=True):
    slug: str


def request(params: WriteParams, *, actor: str = "ann", method: str = "toy.put") -> WriteRequest:
    destructive = isinstance(params, Drop)
    return WriteRequest(
        method=method, actor=actor, params=params, destructive=destructive, now="now"
    )


def putting(slug: str) -> Decide:
    def decide(here: DecisionState) -> Decision:
        return Decision(events=[KbCreated(slug=slug, name=slug)], data={"slug": slug})

    return decide


def decided(store: Store, params: WriteParams, decide: Decide) -> Outcome:
    return pipeline.enter(store, request(params), decide)()


def put(store: Store, slug: str, token: str | None = None, **more: Any) -> Outcome:
    params = Put(slug=slug, client_token=token)
    return pipeline.enter(store, request(params, **more), putting(slug))()


def lines(store: Store) -> list[dict[str, Any]]:
    """Lines of the log on disk, read without the store's code; a line that is still being written
    is left out.
    """
    content = b"".join(path.read_bytes() for path in sorted((store.folder / "log").iterdir()))
    return [msgspec.json.decode(line) for line in content[: content.rfind(b"\n") + 1].splitlines()]


def slugs(store: Store) -> list[str]:
    with store.reading() as snapshot:
        return [slug for slug in snapshot.queries.kb_slugs() if slug != "default"]


def refused(type: str, work: Callable[[], Any]) -> KbprocError:
    with pytest.raises(KbprocError) as error:
        work()
    assert error.value.type == type, error.value.message
    return error.value


def together(*jobs: Callable[[], Any]) -> list[Any]:
    """Runs each job in its own thread; returns results or errors, in order."""
    results: list[Any] = [None] * len(jobs)

    def run(number: int, job: Callable[[], Any]) -> None:
        try:
            results[number] = job()
        except KbprocError as error:
            results[number] = error

    threads = [threading.Thread(target=run, args=entry) for entry in enumerate(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    return results


@pytest.fixture
def store(session: Session) -> Store:
    return session.store


# --------------------------------------------------------------------------- tokens


def test_a_repeated_token_gives_the_first_outcome(store: Store) -> None:
    first = put(store, "aa", "t")
    seq = put(store, "bb").seq
    again = put(store, "aa", "t")
    assert (again.data, again.seq, again.duplicate) == (first.data, first.seq, True)
    assert first.duplicate is False
    assert lines(store)[-1]["seq"] == seq


def test_a_token_with_other_params_is_a_conflict(store: Store) -> None:
    put(store, "aa", "t")
    error = refused("resource.conflict", lambda: put(store, "bb", "t"))
    assert error.field == "$.params.client_token"
    assert slugs(store) == ["aa"]


def test_tokens_belong_to_actor_and_method(store: Store) -> None:
    put(store, "aa", "t")
    assert not put(store, "bb", "t", actor="bob").duplicate
    assert not put(store, "cc", "t", method="toy.other").duplicate
    assert slugs(store) == ["aa", "bb", "cc"]


def test_params_are_compared_decoded_with_their_defaults(session: Session) -> None:
    first = session.ask("kb.create", slug="handbook", client_token="t", timeout_ms=600_000)
    again = session.ask("kb.create", description="", client_token="t", slug="handbook")
    assert again["result"]["meta"]["duplicate"] is True
    assert again["result"]["data"] == first["result"]["data"]
    assert again["result"]["meta"]["seq"] == first["result"]["meta"]["seq"]


def test_a_refused_command_leaves_nothing(session: Session, store: Store) -> None:
    before = lines(store)
    error = session.error("kb.create", slug="default", client_token="t")
    assert error["type"] == "resource.already_exists"
    assert lines(store) == before
    assert not put(store, "aa", "t").duplicate
    assert session.data("kb.create", slug="other", client_token="t")["slug"] == "other"


def test_a_command_that_changes_nothing_keeps_its_token(store: Store) -> None:
    nothing = lambda here: Decision(events=[], data={"n": len(here.queries.kb_slugs())})  # noqa: E731
    params = Put(slug="aa", client_token="t")
    first = pipeline.enter(store, request(params), nothing)()
    put(store, "bb")
    again = pipeline.enter(store, request(params), nothing)()
    assert (again.data, again.duplicate) == (first.data, True)


def test_tokens_outlive_the_process_and_the_views(open_session: OpenSession) -> None:
    one = open_session()
    first = one.data("doc.create", title="A", text="alpha", client_token="t")
    one.close()
    for lost in (False, True):
        if lost:
            shutil.rmtree(one.store.folder / "views")
        two = open_session()
        answer = two.ask("doc.create", title="A", text="alpha", client_token="t")["result"]
        assert answer["meta"]["duplicate"] is True
        assert answer["data"]["id"] == first["id"]
        assert two.data("status")["total_documents"] == 1
        two.close()


def test_exactly_once_under_threads(store: Store) -> None:
    done = together(*(lambda: put(store, "aa", "t") for _ in range(8)))
    assert Counter(outcome.duplicate for outcome in done) == {False: 1, True: 7}
    assert len({outcome.seq for outcome in done}) == 1
    assert slugs(store) == ["aa"]


def test_one_name_for_one_of_many(store: Store) -> None:
    """Each writer decides on the state after the earlier writers of the same batch."""

    def decide(here: DecisionState) -> Decision:
        if here.queries.kb("aa"):
            raise KbprocError("resource.already_exists", "taken")
        return putting("aa")(here)

    params = Put(slug="aa")
    jobs = [lambda: decided(store, params, decide) for _ in range(8)]
    done = together(*jobs)
    assert sum(isinstance(outcome, Outcome) for outcome in done) == 1
    assert {d.type for d in done if isinstance(d, KbprocError)} == {"resource.already_exists"}
    assert slugs(store) == ["aa"]


# ----------------------------------------------------------------------- long writes


def long(store: Store, slug: str = "aa", token: str | None = "t") -> LongWrite:
    return LongWrite(store, request(Put(slug=slug, client_token=token)))


def test_a_long_write_is_several_records_and_the_last_holds_the_outcome(store: Store) -> None:
    write = long(store)
    assert write.earlier() is None
    write.item(putting("a1"))
    write.item(putting("a2"))
    outcome = write.end({"added": 2})
    assert [line["result"] for line in lines(store)[-3:]] == [None, None, {"data": {"added": 2}}]
    assert {line["token"] for line in lines(store)[-3:]} == {"t"}
    again = long(store).earlier()
    assert again is not None
    assert (again.data, again.seq, again.duplicate) == ({"added": 2}, outcome.seq, True)


def test_one_that_was_cut_off_goes_on(store: Store) -> None:
    long(store).item(putting("a1"))
    assert long(store).earlier() is None
    refused("resource.conflict", lambda: long(store, "other").earlier())


def test_that_some_items_failed_is_told_again(store: Store) -> None:
    write = long(store)
    write.item(putting("a1"))
    partial = PartialSuccess(message="Half of it.", first="The other half.")
    write.end({"failed": 1}, partial=partial)
    again = long(store).earlier()
    assert again is not None and again.duplicate
    assert (again.data, again.partial) == ({"failed": 1}, partial)


def test_without_a_token_nothing_but_the_items_is_written(store: Store) -> None:
    write = long(store, token=None)
    write.item(putting("a1"))
    before = len(lines(store))
    assert write.end({"added": 1}).seq == before
    assert len(lines(store)) == before


def test_the_same_long_write_twice_at_once_has_one_outcome(store: Store) -> None:
    one, two = long(store), long(store)
    assert one.earlier() is None and two.earlier() is None
    one.item(putting("a1"))
    first = one.end({"added": 1})
    second = two.end({"added": 0})
    assert (second.data, second.seq, second.duplicate) == ({"added": 1}, first.seq, True)
    assert sum(line["result"] is not None and line["token"] == "t" for line in lines(store)) == 1


def test_a_long_write_does_not_slip_in_under_anothers_token(store: Store) -> None:
    one, two = long(store, "aa"), long(store, "bb")
    assert one.earlier() is None and two.earlier() is None
    one.item(putting("aa"))
    refused("resource.conflict", lambda: two.item(putting("bb")))
    refused("resource.conflict", lambda: two.end({}))
    assert slugs(store) == ["aa"]


# --------------------------------------------------------------------------- dry run


def everything(session: Session) -> dict[str, bytes]:
    root = session.store.folder
    names = ("log", "sources", "views/fulltext")
    return {
        str(path.relative_to(root)): path.read_bytes()
        for name in names
        for path in sorted((root / name).rglob("*"))
        if path.is_file()
    }


# Each has an effect after those before it.
WRITES: dict[str, dict[str, Any]] = {
    "kb.create": {"slug": "handbook"},
    "kb.update": {"slug": "default", "name": "All"},
    "kb.delete": {"slug": "scratch"},
    "doc.create": {"title": "A", "text": "one"},
    "chunk.delete": {"ids": [1]},
    "doc.update": {"id": 1, "title": "B"},
    "doc.reparse": {"ids": [1]},
    "doc.ingest": {"paths": ["docs"]},
    "index.rebuild": {},
    "model.use": {"name": "other", "kind": "hash"},
    "doc.restore": {"ids": [4]},
    "store.backup": {"path": "backup"},
    "store.import": {"path": "export.ndjson"},
    "agent.create": {"slug": "newcomer"},
    "agent.update": {"slug": "keeper", "description": "Keeps the harbour."},
    "note.put": {"agent": "keeper", "slug": "pier", "text": "The pier."},
    "note.sync": {"agent": "keeper"},
    "knowledge.store": {"title": "New", "body": "new"},
    "knowledge.supersede": {"old_id": 6, "new_id": 7},
    "knowledge.unsupersede": {"old_id": 8, "new_id": 9},
    "knowledge.verify": {"ids": [7]},
    "review.edit": {"id": 10, "title": "Mole"},
    "review.approve": {"ids": [10]},
    "review.reject": {"ids": [11]},
    "watch.add": {"folder": "docs"},
    "session.create": {"title": "Harbours"},
    "session.ask": {"session_id": 1, "question": "alpha?"},
    "session.stop": {"session_id": 1, "message_id": 1},
    "chat": {"question": "alpha?"},
    "agent.invoke": {"slug": "keeper", "question": "alpha?"},
    "doc.delete": {"ids": [2]},
    "events.revert": {"seqs": [4]},
    "session.delete": {"session_ids": [1]},
    "note.delete": {"agent": "keeper", "slug": "harbour"},
    "agent.delete": {"slug": "keeper"},
    "knowledge.delete": {"ids": [9]},
    "store.purge": {"document_ids": [1]},
    "store.compact": {"before": "2027-01-01T00:00:00Z"},
}


def test_every_write_is_in_the_table(session: Session) -> None:
    """Writes that need an external server, logs of a home or a plan that waits are exempt.

    They have tests of their own.
    """
    methods = session.connection.service.registry.methods.values()
    elsewhere = {"doc.fetch", "model.install", "store.move"} | {
        f"cluster.{verb}" for verb in ("init", "join", "leave", "reseed")
    }
    elsewhere |= {"chats.add", "plan.approve", "plan.refuse", "watch.remove"}
    assert {m.name for m in methods if m.kind != "read"} - elsewhere == set(WRITES)


def make_world(session: Session, folder: Path) -> None:
    """Fills the store, so that each of WRITES has an effect."""
    (folder / "docs").mkdir()
    (folder / "docs" / "a.md").write_text("# A\n\nAlpha.\n")
    session.data("kb.create", slug="scratch")
    session.data("doc.create", title="Old", text="alpha beta", tags=["x"])
    session.data("doc.create", title="Other", text="gamma")
    session.data("doc.create", title="Third", text="delta")
    session.data("doc.create", title="Gone", text="epsilon")
    plan = session.error("doc.delete", ids=[4])["plan"]
    session.data("doc.delete", ids=[4], confirm=plan["plan_hash"])
    session.data("agent.create", slug="keeper")
    session.data("note.put", agent="keeper", slug="harbour", text="The harbour.")
    for title in "abcd":
        session.data("knowledge.store", title=title, body=title)
    session.data("knowledge.supersede", old_id=8, new_id=9)
    session.data("session.create")
    session.data("session.ask", session_id=1, question="alpha?")
    session.data("store.export", path="export.ndjson")
    session.data("kb.create", slug="reviewed", review="all")
    for title in "ef":
        session.data("knowledge.store", kb="reviewed", title=title, body=title)


def test_a_dry_run_writes_nothing_and_uses_no_token(
    session: Session, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    make_world(session, tmp_path)

    def check(method: str) -> None:
        before, seq = everything(session), session.store.seq
        params = {**WRITES[method], "client_token": method}
        answer = session.ask(method, **params, dry_run=True)["result"]
        assert answer["data"] is None
        assert answer["meta"]["dry_run"] is True
        plan = answer["meta"]["plan"]
        assert plan["action"] == plan["risk"]["action"] == method
        assert {"targets", "changes", "events", "risk", "plan_hash"} <= plan.keys()
        assert everything(session) == before
        assert session.store.seq == seq
        destructive = session.service.registry.methods[method].kind == "destructive"
        approved = {"confirm": plan["plan_hash"]} if destructive else {}
        done = session.ask(method, **params, **approved)
        assert "duplicate" not in done["result"]["meta"], done
        session.embedded()
        session.library.compact()  # else a later search commits the index

    for method in WRITES:
        with subtests.test(method):
            check(method)


def test_a_preview_is_what_happens(session: Session) -> None:
    session.data("doc.create", title="A", text="alpha")
    session.data("doc.create", title="B", text="beta")
    plan = session.ask("doc.delete", ids=[2], dry_run=True)["result"]["meta"]["plan"]
    assert plan["targets"] == [{"kind": "document", "id": 2, "name": "B", "revision": 1}]
    assert plan["events"] == {
        "items": [{"type": "doc.deleted", "summary": "hide document 2"}],
        "total": 1,
    }
    session.data("doc.delete", ids=[2], confirm=plan["plan_hash"])
    [event] = lines(session.store)[-1]["events"]
    assert event == {"type": "doc.deleted", "id": 2}


def test_a_plan_holds_no_text(session: Session) -> None:
    plan = session.ask("doc.create", title="A", text="my secret", dry_run=True)["result"]
    assert "secret" not in msgspec.json.encode(plan).decode()


def test_a_plan_lists_a_hundred_events_and_tells_the_total(store: Store) -> None:
    def decide(here: DecisionState) -> Decision:
        events: list[Event] = [KbCreated(slug=f"kb-{n}", name="x") for n in range(150)]
        targets = [Target(kind="kb", id=f"kb-{n}", name="x", revision=n) for n in range(150)]
        return Decision(events=events, data=None, targets=targets)

    plan = pipeline.enter(store, request(Put(slug="aa", dry_run=True)), decide)().plan
    assert plan is not None
    assert (len(plan.events.items), plan.events.total) == (100, 150)


# ---------------------------------------------------------------------- confirmation


@pytest.fixture
def four(session: Session) -> Session:
    for title in "ABCD":
        session.data("doc.create", title=title, text=f"text of {title}")
    return session


def plan_for(session: Session, **params: Any) -> dict[str, Any]:
    plan: dict[str, Any] = session.error("doc.delete", **params)["plan"]
    return plan


def test_a_destructive_write_needs_confirmation(four: Session) -> None:
    error = four.error("doc.delete", ids=[1])
    assert error["type"] == "input.confirmation_required"
    assert error["exit_code"] == 10
    assert error["risk"] == {"level": "medium", "action": "doc.delete"}
    assert "retry" not in error, "only a person's approval leads on"
    assert four.data("status")["total_documents"] == 4
    done = four.data("doc.delete", ids=[1], confirm=error["plan"]["plan_hash"])
    assert done == {"deleted": 1, "ids": [1]}


def test_the_plan_of_a_dry_run_confirms(four: Session) -> None:
    plan = four.ask("doc.delete", ids=[1], dry_run=True)["result"]["meta"]["plan"]
    assert plan["plan_hash"] == plan_for(four, ids=[1])["plan_hash"]
    four.data("doc.delete", ids=[1], confirm=plan["plan_hash"])


def test_a_plan_is_stale_once_a_target_has_changed(four: Session) -> None:
    stale = plan_for(four, ids=[1, 2])["plan_hash"]
    four.data("doc.update", id=2, title="New")
    error = four.error("doc.delete", ids=[1, 2], confirm=stale)
    assert error["type"] == "resource.plan_stale"
    assert error["plan"]["plan_hash"] != stale
    assert four.data("status")["total_documents"] == 4
    four.data("doc.delete", ids=[1, 2], confirm=error["plan"]["plan_hash"])


def test_a_plan_is_stale_once_there_is_a_new_target(four: Session) -> None:
    stale = plan_for(four, where={"title_contains": "A"})["plan_hash"]
    four.data("doc.create", title="A as well", text="more")
    error = four.error("doc.delete", where={"title_contains": "A"}, confirm=stale)
    assert error["type"] == "resource.plan_stale"


def test_a_plan_survives_what_it_is_not_about(four: Session) -> None:
    good = plan_for(four, ids=[1])["plan_hash"]
    four.data("doc.update", id=2, title="New")
    four.data("doc.create", title="E", text="e")
    four.data("doc.delete", ids=[1], confirm=good)


@pytest.mark.parametrize("confirm", ["", "yes", "0" * 32])
def test_a_made_up_confirmation_is_stale(four: Session, confirm: str) -> None:
    error = four.error("doc.delete", ids=[1], confirm=confirm)
    assert error["type"] == "resource.plan_stale"
    assert error["field"] == "$.params.confirm"


def test_a_plan_is_bound_to_actor_method_and_params(store: Store) -> None:
    def decide(here: DecisionState) -> Decision:
        target = Target(kind="kb", id="aa", name="aa", revision=1)
        return Decision(events=[KbDeleted(slug="aa")], data=None, targets=[target])

    def hash_of(params: Drop, **more: Any) -> str:
        plan = pipeline.enter(store, request(params, **more), decide)().plan
        assert plan is not None
        return plan.plan_hash

    dry = Drop(slug="aa", dry_run=True)
    hashes = {
        hash_of(dry),
        hash_of(dry, actor="bob"),
        hash_of(dry, method="toy.other"),
        hash_of(Drop(slug="bb", dry_run=True)),
    }
    assert len(hashes) == 4
    assert hash_of(dry) == hash_of(Drop(slug="aa", dry_run=True, client_token="t", confirm="x"))


def test_more_than_half_of_a_kb_is_bulk(four: Session) -> None:
    assert plan_for(four, ids=[1, 2, 3, 4])["risk"]["level"] == "medium", "seen at a glance"
    four.data("kb.create", slug="large")
    for n in range(10):
        four.data("doc.create", title=f"T{n}", text="x", kb="large")
    assert plan_for(four, ids=[*range(5, 10)])["risk"]["level"] == "medium"
    assert plan_for(four, ids=[*range(5, 11)])["risk"]["level"] == "bulk"
    for n in range(20):
        four.data("doc.create", title=f"S{n}", text="x")
    assert plan_for(four, ids=[*range(5, 11)])["risk"]["level"] == "bulk", "few of the store"


def test_nothing_to_remove_needs_no_confirmation(four: Session) -> None:
    done = four.data("doc.delete", where={"title_contains": "zebra"})
    assert done == {"deleted": 0, "ids": []}


def test_a_confirmed_deed_is_done_once(four: Session) -> None:
    good = plan_for(four, ids=[1])["plan_hash"]
    four.data("doc.delete", ids=[1], confirm=good, client_token="t")
    again = four.ask("doc.delete", ids=[1], client_token="t")["result"]
    assert again["meta"]["duplicate"] is True
    assert four.error("doc.delete", ids=[1], confirm=good)["type"] == "resource.not_found"


def test_confirmations_need_the_scope(open_session: OpenSession) -> None:
    session = open_session(scopes="doc:read,doc:write")
    session.data("doc.create", title="A", text="a")
    error = session.error("doc.delete", ids=[1])
    assert error["type"] == "auth.insufficient_scope"
    assert error["detail"]["needed"] == "admin"


# ---------------------------------------------------------------- wholly or not at all


def unchanged(store: Store, work: Callable[[], Any], error: type[BaseException]) -> None:
    before = lines(store), slugs(store), store.seq
    with pytest.raises(error):
        work()
    assert (lines(store), slugs(store), store.seq) == before
    assert put(store, "zz").seq == before[2] + 1, "the next write is taken"


def test_a_decision_that_raises_leaves_nothing(store: Store) -> None:
    def decide(here: DecisionState) -> Decision:
        raise ZeroDivisionError

    unchanged(store, lambda: decided(store, Put(slug="aa"), decide), ZeroDivisionError)


def test_a_decision_that_raises_does_not_harm_its_neighbours(store: Store) -> None:
    def decide(here: DecisionState) -> Decision:
        raise ZeroDivisionError

    def fail() -> None:
        with pytest.raises(ZeroDivisionError):
            pipeline.enter(store, request(Put(slug="no")), decide)()

    with Holding(store) as holding:
        done = holding.queue(
            lambda: put(store, "a1"), fail, lambda: put(store, "a2"), lambda: put(store, "a3")
        )
    assert [type(outcome) for outcome in done()] == [Outcome, type(None), Outcome, Outcome]
    assert slugs(store) == ["a1", "a2", "a3"]


def test_an_apply_that_raises_leaves_neither_log_nor_views_changed(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = folds.FOLDS[KbDeleted]

    def broken(state: Any, record: Any, event: Any) -> None:
        real(state, record, event)
        state.tables.execute("select no_such_function()")

    def decide(here: DecisionState) -> Decision:
        return Decision(events=[KbDeleted(slug="default")], data=None)

    monkeypatch.setitem(folds.FOLDS, KbDeleted, broken)
    unchanged(store, lambda: decided(store, Put(slug="bad"), decide), KbprocError)
    assert slugs(store) == ["zz"]


def test_an_effect_that_raises_leaves_nothing(store: Store) -> None:
    def decide(here: DecisionState) -> Decision:
        def effect() -> None:
            raise OSError("no")

        return Decision(events=[KbCreated(slug="aa", name="x")], data=None, effect=effect)

    unchanged(store, lambda: decided(store, Put(slug="aa"), decide), OSError)


# ------------------------------------------------------------------------ group commit


class Holding:
    """Holds the lane until all writers have queued up behind it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._let_go = threading.Event()
        self._inside = threading.Event()
        self._thread = threading.Thread(target=self._hold)
        self._jobs: list[Callable[[], Any]] = []

    def _hold(self) -> None:
        def work(lane: Any) -> None:
            self._inside.set()
            assert self._let_go.wait(PATIENCE)

        self._store.commit(work)

    def __enter__(self) -> Holding:
        self._thread.start()
        assert self._inside.wait(PATIENCE)
        return self

    def queue(self, *jobs: Callable[[], Any]) -> Callable[[], list[Any]]:
        """Starts the jobs in order, each queued before the next one starts."""
        results: list[Any] = [None] * len(jobs)
        threads = []

        def run(number: int, job: Callable[[], Any]) -> None:
            try:
                results[number] = job()
            except KbprocError as error:
                results[number] = error

        for number, job in enumerate(jobs):
            thread = threading.Thread(target=run, args=(number, job))
            thread.start()
            threads.append(thread)
            until(
                lambda n=number, t=thread: len(self._store.turns.queue) > n or not t.is_alive(),
                "its turn",
            )

        def wait() -> list[Any]:
            for thread in threads:
                thread.join(PATIENCE)
            return results

        return wait

    def __exit__(self, *exc: object) -> None:
        self._let_go.set()
        self._thread.join(PATIENCE)


class Syncs:
    """Counts the log's fsyncs, and fails them on demand."""

    def __init__(self, store: Store) -> None:
        self.count = 0
        self.fails = False
        self._folder = str(store.folder / "log")
        self._real = os.fdatasync

    def __call__(self, fd: int) -> None:
        if Path(f"/proc/self/fd/{fd}").resolve().is_relative_to(self._folder):
            self.count += 1
            if self.fails:
                raise OSError(errno.EIO, "Input/output error")
        self._real(fd)


@pytest.fixture
def syncs(store: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[Syncs]:
    if not Path("/proc/self/fd").exists():
        pytest.skip("needs /proc")
    syncs = Syncs(store)
    monkeypatch.setattr("kbproc.base.disk.sync_data", syncs)
    yield syncs
    monkeypatch.undo()


def test_writers_that_come_together_share_one_fsync(store: Store, syncs: Syncs) -> None:
    with Holding(store) as holding:
        wait = holding.queue(*(lambda n=n: put(store, f"kb-{n}") for n in range(10)))
    done = wait()
    assert syncs.count == 1
    assert [outcome.seq for outcome in done] == list(range(2, 12))
    assert [line["seq"] for line in lines(store)] == list(range(1, 12))
    assert slugs(store) == sorted(f"kb-{n}" for n in range(10))


def test_what_is_acknowledged_is_in_the_log_and_can_be_read(store: Store, syncs: Syncs) -> None:
    """Sixteen threads write freely: at each answer the write is on disk and visible."""

    def write(thread: int) -> list[int]:
        seqs = []
        for number in range(4):
            slug = f"kb-{thread}-{number}"
            outcome = put(store, slug)
            assert outcome.seq in [line["seq"] for line in lines(store)]
            assert slug in slugs(store)
            seqs.append(outcome.seq)
        return seqs

    done = together(*(lambda n=n: write(n) for n in range(16)))
    seqs = sorted(seq for seqs in done for seq in seqs)
    assert seqs == list(range(2, 66))
    assert 1 <= syncs.count <= 64


def test_a_refusal_among_others_is_its_own(store: Store, syncs: Syncs) -> None:
    put(store, "aa", "t")
    syncs.count = 0
    with Holding(store) as holding:
        wait = holding.queue(
            lambda: put(store, "bb"), lambda: put(store, "cc", "t"), lambda: put(store, "dd")
        )
    first, second, third = wait()
    assert (first.seq, third.seq) == (3, 4)
    assert second.type == "resource.conflict"
    assert syncs.count == 1


def test_a_failed_fsync_refuses_all_that_shared_it(store: Store, syncs: Syncs) -> None:
    put(store, "aa")
    before = lines(store)
    syncs.fails = True
    with Holding(store) as holding:
        wait = holding.queue(*(lambda n=n: put(store, f"kb-{n}") for n in range(3)))
    assert [error.type for error in wait()] == ["store.io"] * 3
    assert refused("store.io", lambda: put(store, "bb"))
    assert lines(store) == before
    assert slugs(store) == ["aa"], "reads go on"
    syncs.fails = False
    put(store, "cc")
    assert slugs(store) == ["aa", "cc"]
    assert store.log.verify() == store.seq


def test_a_full_disk_refuses_one_and_the_next_is_taken(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.write

    def full(fd: int, data: Any) -> int:
        if b'"slug":"big"' in bytes(data):
            real(fd, bytes(data)[:20])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(fd, data)

    monkeypatch.setattr("kbproc.base.disk.write", full)
    with Holding(store) as holding:
        wait = holding.queue(
            lambda: put(store, "a1"), lambda: put(store, "big"), lambda: put(store, "a2")
        )
    first, second, third = wait()
    assert (first.seq, second.type, third.seq) == (2, "store.io", 3)
    assert slugs(store) == ["a1", "a2"]
    assert [line["seq"] for line in lines(store)] == [1, 2, 3]


def test_time_never_goes_back(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    put(store, "aa")
    monkeypatch.setattr(store.host, "now_ms", lambda: 0)
    put(store, "bb")
    times = [line["ts"] for line in lines(store)]
    assert times == sorted(times)
    assert not times[-1].startswith("1970")
