"""Random lives of a store against a model of it that is a dictionary.

A kill is the store's folder as it stands at a failpoint, copied: the same files
that kill -9 leaves behind. Life goes on in the copy, and the write that was in
flight is sent again under its token.
"""

from __future__ import annotations

import copy
import itertools
import shutil
import tempfile
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from kbproc.base import failpoints
from kbproc.knowledge.app.health import doctor
from tests.kit.faults import as_killed, faults_of, note
from tests.kit.patience import LONG, PATIENCE
from tests.kit.talk import Session

compared = faults_of("random")

EXAMPLES, STEPS = (120, 50) if LONG else (4, 25)

WORDS = [f"{a}{b}" for a in ("kala", "mori", "tuve", "zano") for b in ("bek", "dux", "fim")]
POINTS = [
    name
    for name in failpoints.FAILPOINTS
    if name.split(".")[0]
    in {"log", "catalog", "fulltext", "vectors", "pack", "blob", "purge", "views"}
]
words = st.lists(st.sampled_from(WORDS), min_size=1, max_size=12)
tags = st.lists(st.sampled_from(["red", "green", "blue"]), max_size=2, unique=True)

Documents = dict[int, dict[str, Any]]


class Life(RuleBasedStateMachine):
    """`documents`: all that are not purged; `past`: position → the documents at that time."""

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="kbproc-life-"))
        self.tokens, self.stores = itertools.count(1), itertools.count(1)
        self.documents: Documents = {}
        self.purged: set[int] = set()
        self.past: dict[int, Documents] = {}
        self.kill_at: str | None = None
        self.last: tuple[int, Documents] | None = None  # last write, state before
        self.session = Session(self.folder / "store-0", cwd=self.folder)
        self.remember()

    def teardown(self) -> None:
        if not hasattr(self, "session"):
            return
        store = self.session.store
        self.session.connection.end(PATIENCE)
        assert not any(doctor.compare(store).values())
        assert store.log.verify() == store.seq
        self.session.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    # ------------------------------------------------------------------- writing

    def write(self, method: str, **params: Any) -> Any:
        """The data of a write that happens exactly once, even if the process dies on the way."""
        params["client_token"] = f"t{next(self.tokens)}"
        killed = self.folder / f"store-{next(self.stores)}"
        point, self.kill_at = self.kill_at, None

        def die(name: str) -> None:
            if name == point and not killed.exists():
                as_killed(self.session.store.folder, killed)

        failpoints.arm(die if point else None)
        try:
            data = self.approved(method, params)
        finally:
            failpoints.arm(None)
        if killed.exists():
            self.session.close()
            self.session = Session(killed, cwd=self.folder)
            data = self.approved(method, params)
        return data

    def approved(self, method: str, params: dict[str, Any]) -> Any:
        answer = self.session.ask(method, **params)
        if "error" in answer and (plan := answer["error"]["data"].get("plan")):
            answer = self.session.ask(method, **params, confirm=plan["plan_hash"])
        assert "result" in answer, answer
        return answer["result"]["data"]

    def remember(self, undoes: Documents | None = None) -> None:
        seq = self.session.store.seq
        self.past[seq] = copy.deepcopy(self.documents)
        self.last = None if undoes is None else (seq, undoes)

    def some(self, data: st.DataObject, *, deleted: bool) -> int:
        return data.draw(st.sampled_from(sorted(self.ids(deleted=deleted))))

    def ids(self, *, deleted: bool, entries: bool = False) -> list[int]:
        return [
            id
            for id, document in self.documents.items()
            if document["deleted"] == deleted and ("by" in document) == entries
        ]

    def entries(self, *, superseded: bool) -> list[int]:
        live = self.ids(deleted=False, entries=True)
        return [id for id in live if (self.documents[id]["by"] is not None) == superseded]

    @rule(title=words, text=words, tags=tags)
    def create(self, title: list[str], text: list[str], tags: list[str]) -> None:
        params = {"title": " ".join(title), "text": " ".join(text), "tags": tags}
        id = self.write("doc.create", **params)["id"]
        assert id not in self.documents
        assert id not in self.purged
        self.documents[id] = {**params, "deleted": False}
        self.remember()

    @rule(items=st.lists(st.tuples(words, words, tags), min_size=1, max_size=4))
    def create_many(self, items: list[tuple[list[str], list[str], list[str]]]) -> None:
        """Creates documents in one step; one that can't be added does not affect the others."""
        documents = [{"title": " ".join(a), "text": " ".join(b), "tags": c} for a, b, c in items]
        lost = {"title": "lost", "text": "lost", "kb": "nowhere"}
        data = self.write("doc.create", documents=[lost, *documents])
        assert (data["added"], data["failed"]) == (len(documents), 1)
        ids = [one["id"] for one in data["documents"]]
        assert len(set(ids)) == len(documents) and not {*ids} & {*self.documents, *self.purged}
        for id, one in zip(ids, documents, strict=True):
            self.documents[id] = {**one, "deleted": False}
        self.remember()

    @precondition(lambda self: self.ids(deleted=False))
    @rule(data=st.data(), text=words, tags=tags, which=st.sampled_from(["text", "tags", "title"]))
    def update(self, data: st.DataObject, text: list[str], tags: list[str], which: str) -> None:
        id = self.some(data, deleted=False)
        new = {"text": " ".join(text), "title": " ".join(text), "tags": tags}[which]
        self.write("doc.update", id=id, **{which: new})
        self.documents[id][which] = new
        self.remember()

    @precondition(lambda self: self.ids(deleted=False))
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        id = self.some(data, deleted=False)
        self.write("doc.delete", ids=[id])
        self.documents[id]["deleted"] = True
        self.remember()

    @precondition(lambda self: self.ids(deleted=True))
    @rule(data=st.data())
    def restore(self, data: st.DataObject) -> None:
        id = self.some(data, deleted=True)
        self.write("doc.restore", ids=[id])
        self.documents[id]["deleted"] = False
        self.remember()

    @precondition(lambda self: self.documents)
    @rule(data=st.data(), deleted=st.booleans())
    def purge(self, data: st.DataObject, deleted: bool) -> None:
        some = [id for id, document in self.documents.items() if document["deleted"] == deleted]
        id = data.draw(st.sampled_from(sorted(some or self.documents)))
        self.write("store.purge", document_ids=[id])
        if not self.documents[id]["deleted"]:
            self.take_out(id)
        for documents in (self.documents, *self.past.values()):
            documents.pop(id, None)
        self.purged.add(id)
        self.remember()

    # -------------------------------------------------------------------- entries

    @rule(title=words, text=words, tags=tags)
    def store_entry(self, title: list[str], text: list[str], tags: list[str]) -> None:
        before = copy.deepcopy(self.documents)
        params = {"title": " ".join(title), "tags": tags}
        id = self.write("knowledge.store", **params, body=" ".join(text))["id"]
        assert id not in self.documents
        self.documents[id] = {**params, "text": " ".join(text), "deleted": False, "by": None}
        deleted_entry = {**self.documents[id], "deleted": True}
        self.remember(undoes={**before, id: deleted_entry})

    @precondition(lambda self: len(self.entries(superseded=False)) > 1)
    @rule(data=st.data())
    def supersede(self, data: st.DataObject) -> None:
        old = data.draw(st.sampled_from(self.entries(superseded=False)))
        ends = heads(self.documents)
        new = data.draw(st.sampled_from([id for id in sorted(ends) if ends[id] != old]))
        before = copy.deepcopy(self.documents)
        self.write("knowledge.supersede", old_id=old, new_id=new)
        self.documents[old]["by"] = new
        self.remember(undoes=before)
        circle = self.session.error("knowledge.supersede", old_id=new, new_id=old)
        assert circle["type"] == "knowledge.cycle"

    @precondition(lambda self: self.entries(superseded=True))
    @rule(data=st.data())
    def unsupersede(self, data: st.DataObject) -> None:
        old = data.draw(st.sampled_from(self.entries(superseded=True)))
        before = copy.deepcopy(self.documents)
        self.write("knowledge.unsupersede", old_id=old, new_id=self.documents[old]["by"])
        self.documents[old]["by"] = None
        self.remember(undoes=before)

    @precondition(lambda self: self.ids(deleted=False, entries=True))
    @rule(data=st.data(), count=st.integers(1, 2))
    def delete_entries(self, data: st.DataObject, count: int) -> None:
        live = st.sampled_from(self.ids(deleted=False, entries=True))
        ids = data.draw(st.lists(live, min_size=1, max_size=count, unique=True))
        before = copy.deepcopy(self.documents)
        self.write("knowledge.delete", ids=ids)
        for id in ids:
            self.take_out(id)
            self.documents[id]["deleted"] = True
        self.remember(undoes=before)

    def take_out(self, id: int) -> None:
        """Links the predecessors of an entry to its successor, if it has one."""
        for document in self.documents.values():
            if document.get("by") == id and not document["deleted"]:
                document["by"] = self.documents[id]["by"]

    @precondition(lambda self: self.last)
    @rule()
    def undo_the_last(self) -> None:
        assert self.last is not None
        (seq, before), now = self.last, copy.deepcopy(self.documents)
        done = self.write("events.revert", seqs=[seq])
        assert done["kept"] == []
        self.documents = before
        self.remember(undoes=now)

    # ------------------------------------------------------------------ accidents

    @rule(point=st.sampled_from(POINTS))
    def die_during_the_next_write(self, point: str) -> None:
        self.kill_at = point

    @rule(views=st.booleans())
    def reopen(self, views: bool) -> None:
        store = self.session.store.folder
        self.session.close()
        if not views:
            shutil.rmtree(store / "views")
        self.session = Session(store, cwd=self.folder)

    @rule()
    def rebuild(self) -> None:
        self.write("index.rebuild")
        self.remember()

    # -------------------------------------------------------------------- reading

    @rule(word=st.sampled_from(WORDS))
    def search(self, word: str) -> None:
        assert self.found(word) == ids_with(self.documents, word)

    def found(self, word: str, **more: Any) -> set[int]:
        answer = self.session.data("search", query=word, mode="fts", limit=100, **more)
        return {hit["source"]["document_id"] for hit in answer["results"]}

    @rule(data=st.data(), word=st.sampled_from(WORDS))
    def look_back(self, data: st.DataObject, word: str) -> None:
        seq = data.draw(st.sampled_from(sorted(self.past)))
        then = self.past[seq]
        assert self.found(word, as_of=seq) == ids_with(then, word)
        assert listed(self.session, as_of=seq) == rows_of(then)
        if not self.purged:  # after a purge inside a chain, the past can't name its head
            assert chains(self.session, as_of=seq) == linked(then)

    @precondition(lambda self: self.documents)
    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(sorted(self.documents)))
        if self.documents[id]["deleted"]:
            assert self.session.error("doc.get", id=id)["type"] == "resource.not_found"
        else:
            document = self.session.data("doc.get", id=id, text=True)
            assert document["text"] == self.documents[id]["text"]

    @invariant()
    def lists_agree(self) -> None:
        if hasattr(self, "session"):
            assert listed(self.session) == rows_of(self.documents)
            assert chains(self.session) == linked(self.documents)


def ids_with(documents: Documents, word: str) -> set[int]:
    return {
        id
        for id, document in documents.items()
        if not document["deleted"]
        and document.get("by") is None
        and word in f"{document['title']} {document['text']}".split()
    }


def heads(documents: Documents) -> dict[int, int]:
    """Maps each live entry to the head of its chain."""
    heads_by_id = {}
    for id, document in documents.items():
        if "by" in document and not document["deleted"]:
            at = id
            while (by := documents[at]["by"]) is not None:
                at = by
            heads_by_id[id] = at
    return heads_by_id


def linked(documents: Documents) -> list[tuple[int, int | None, int]]:
    return [(id, documents[id]["by"], head) for id, head in sorted(heads(documents).items())]


def chains(session: Session, **more: Any) -> list[tuple[int, int | None, int]]:
    entries = session.data(
        "knowledge.list", limit=1000, include_superseded=True, include_expired=True, **more
    )
    return [(entry["id"], entry["superseded_by"], entry["head"]) for entry in entries]


def rows_of(documents: Documents) -> list[tuple[int, str, list[str]]]:
    return [
        (id, document["title"], document["tags"])
        for id, document in sorted(documents.items())
        if not document["deleted"]
    ]


def listed(session: Session, **more: Any) -> list[tuple[int, str, list[str]]]:
    documents = session.data("doc.list", limit=1000, **more)
    return [(document["id"], document["title"], document["tags"]) for document in documents]


def test_a_random_life() -> None:
    run_state_machine_as_test(
        Life,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
    note(
        "random",
        "random lives of documents and entries: writes, purges, reverts, kills, reopens",
        "no difference from a model in memory, now and at every earlier position",
    )
