"""Random lives of a store against a model of it that is a dictionary.

A kill is the store's folder as it stands at a failpoint, copied: the same files
that kill -9 leaves behind. Life goes on in the copy, and the write that was in
flight is sent again under its token.
"""

from __future__ import annotations

import copy
import itertools
import os
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

from kbproc import doctor, failpoints
from tests.faults import as_killed, faults_of, note
from tests.talk import Session

compared = faults_of("random")

LONG = os.environ.get("KBPROC_TEST_PROFILE") == "long"
EXAMPLES, STEPS = (120, 50) if LONG else (12, 30)

WORDS = [f"{a}{b}" for a in ("kala", "mori", "tuve", "zano") for b in ("bek", "dux", "fim")]
POINTS = [
    name for name in failpoints.FAILPOINTS
    if name.split(".")[0] in {"log", "catalog", "fulltext", "vectors", "pack", "blob", "purge",
                              "views"}
]  # fmt: skip
words = st.lists(st.sampled_from(WORDS), min_size=1, max_size=12)
tags = st.lists(st.sampled_from(["red", "green", "blue"]), max_size=2, unique=True)

Documents = dict[int, dict[str, Any]]


class Life(RuleBasedStateMachine):
    """`documents`: every one that is not purged; `past`: position → what there was."""

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="kbproc-life-"))
        self.tokens, self.stores = itertools.count(1), itertools.count(1)
        self.documents: Documents = {}
        self.purged: set[int] = set()
        self.past: dict[int, Documents] = {}
        self.kill_at: str | None = None
        self.session = Session(self.folder / "store-0", cwd=self.folder)
        self.remember()

    def teardown(self) -> None:
        if not hasattr(self, "session"):
            return
        store = self.session.store
        self.session.connection.end(5)
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

    def remember(self) -> None:
        self.past[self.session.store.seq] = copy.deepcopy(self.documents)

    def some(self, data: st.DataObject, *, deleted: bool) -> int:
        return data.draw(st.sampled_from(sorted(self.ids(deleted=deleted))))

    def ids(self, *, deleted: bool) -> list[int]:
        return [id for id, document in self.documents.items() if document["deleted"] == deleted]

    @rule(title=words, text=words, tags=tags)
    def create(self, title: list[str], text: list[str], tags: list[str]) -> None:
        made = {"title": " ".join(title), "text": " ".join(text), "tags": tags}
        id = self.write("doc.create", **made)["id"]
        assert id not in self.documents
        assert id not in self.purged
        self.documents[id] = {**made, "deleted": False}
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
        if not self.ids(deleted=deleted):
            deleted = not deleted
        id = self.some(data, deleted=deleted)
        self.write("store.purge", document_ids=[id])
        for documents in (self.documents, *self.past.values()):
            documents.pop(id, None)
        self.purged.add(id)
        self.remember()

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
        assert self.found(word) == holding(self.documents, word)

    def found(self, word: str, **more: Any) -> set[int]:
        answer = self.session.data("search", query=word, mode="fts", limit=100, **more)
        return {hit["source"]["document_id"] for hit in answer["results"]}

    @rule(data=st.data(), word=st.sampled_from(WORDS))
    def look_back(self, data: st.DataObject, word: str) -> None:
        seq = data.draw(st.sampled_from(sorted(self.past)))
        then = self.past[seq]
        assert self.found(word, as_of=seq) == holding(then, word)
        assert listed(self.session, as_of=seq) == shown(then)

    @precondition(lambda self: self.documents)
    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(sorted(self.documents)))
        if self.documents[id]["deleted"]:
            assert self.session.error("doc.get", id=id)["type"] == "resource.not_found"
        else:
            found = self.session.data("doc.get", id=id, text=True)
            assert found["text"] == self.documents[id]["text"]

    @invariant()
    def lists_agree(self) -> None:
        if hasattr(self, "session"):
            assert listed(self.session) == shown(self.documents)


def holding(documents: Documents, word: str) -> set[int]:
    return {
        id for id, document in documents.items()
        if not document["deleted"] and word in f"{document['title']} {document['text']}".split()
    }  # fmt: skip


def shown(documents: Documents) -> list[tuple[int, str, list[str]]]:
    return [
        (id, document["title"], document["tags"])
        for id, document in sorted(documents.items())
        if not document["deleted"]
    ]


def listed(session: Session, **more: Any) -> list[tuple[int, str, list[str]]]:
    found = session.data("doc.list", limit=1000, **more)
    return [(document["id"], document["title"], document["tags"]) for document in found]


def test_a_random_life() -> None:
    run_state_machine_as_test(
        Life,
        settings=settings(
            max_examples=EXAMPLES, stateful_step_count=STEPS, deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )  # fmt: skip
    note("random", "random lives of writes, deletes, restores, purges, kills, reopens, lost views",
         "no difference from a model in memory, now and at every earlier position")  # fmt: skip
