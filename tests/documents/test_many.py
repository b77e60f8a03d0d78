"""Many texts in one doc.create: one step, one token, and failures do not affect others."""

from __future__ import annotations

import errno
import itertools
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbproc.base import failpoints
from kbproc.knowledge.documents.adding import MOST, NewDocument
from kbproc.methods.all import registry
from kbproc.methods.calls.schemas import params_schema, result_schema
from kbproc.methods.doc.create import Create
from tests.conftest import OpenSession
from tests.kit.corpus import confirmed
from tests.kit.schemas import fit
from tests.kit.sources import source_files
from tests.kit.talk import Message, Session, as_bytes, cancel, request

CREATE = registry().methods["doc.create"]
Item = dict[str, Any]


def item(n: int, **more: Any) -> Item:
    return {"title": f"Page {n}", "text": f"words of page{n}", **more}


def add(session: Session, documents: list[Item], **more: Any) -> Message:
    """Creates the documents; returns the whole result, checked against its schema."""
    answer = session.ask("doc.create", documents=documents, **more)
    assert "result" in answer, answer
    result: Message = answer["result"]
    fit(result, result_schema(CREATE))
    return result


def titles(session: Session, **params: Any) -> list[str]:
    return [doc["title"] for doc in session.data("doc.list", limit=1000, **params)]


# ------------------------------------------------------------------ what is added


def test_many_are_one_record(session: Session) -> None:
    before = session.store.seq
    result = add(session, [item(n) for n in range(3)])
    assert session.store.seq == before + 1 == result["meta"]["seq"]
    assert "partial" not in result["meta"]
    assert result["data"] == {
        "added": 3,
        "failed": 0,
        "chunks": 3,
        "documents": [
            {"index": n, "id": n + 1, "kb": "default", "title": f"Page {n}", "chunk_count": 1}
            for n in range(3)
        ],
        "failures": [],
    }
    assert titles(session) == ["Page 0", "Page 1", "Page 2"]
    [record] = session.data("events.read", after_seq=before)
    assert [event["document_id"] for event in record["events"]] == [1, 2, 3]


def test_each_of_many_is_what_it_would_be_alone(open_session: OpenSession, tmp_path: Any) -> None:
    items = [
        item(1, tags=["Release Notes"], metadata={"n": 1, "z": None}, source_id="a/1"),
        item(2, text="# Head\n\nBody.", type="markdown"),
        item(3, title=" Spaces ", text="\n".join(f"Line {n}." for n in range(900)), kb="other"),
        item(4, text="<h1>Top</h1><p>Under it.</p>", type="html"),
    ]
    alone, together = (open_session(tmp_path / name) for name in ("alone", "together"))
    for session in (alone, together):
        session.data("kb.create", slug="other")
    for one in items:
        alone.data("doc.create", **one)
    documents = add(together, items)["data"]["documents"]
    for session in (alone, together):
        session.embedded()
    for one in documents:
        answers = [
            session.data("doc.get", id=one["id"], text=True) for session in (alone, together)
        ]
        assert answers[0] == answers[1]
        assert {name: answers[1][name] for name in one if name != "index"} == {
            name: value for name, value in one.items() if name != "index"
        }
        chunks = [
            session.data("chunk.list", document_id=one["id"]) for session in (alone, together)
        ]
        assert chunks[0] == chunks[1]


def test_one_of_many_takes_what_a_single_one_takes() -> None:
    """Both have the same limits, defaults and descriptions, and the same error for empty texts."""
    schema = params_schema(CREATE)
    single, many = schema["properties"], schema["$defs"]["NewDocument"]["properties"]
    assert set(many) == set(NewDocument.__struct_fields__)
    assert set(single) - set(many) == {"client_token", "dry_run", "timeout_ms", "documents"}
    for name in set(many) - {"title", "text", "kb"}:
        assert many[name] == single[name]
    for name in ("title", "text"):
        assert many[name]["maxLength"] == single[name]["maxLength"]
    assert many["kb"]["pattern"] == single["kb"]["pattern"]
    assert Create().kb == "default"


def test_they_go_where_each_says_or_where_all_go(session: Session) -> None:
    for slug in ("papers", "other"):
        session.data("kb.create", slug=slug)
    items = [item(1), item(2, kb="other"), item(3, kb="default")]
    documents = add(session, items, kb="papers")["data"]["documents"]
    assert [one["kb"] for one in documents] == ["papers", "other", "default"]
    peer = session.connection.peer
    session.connection.peer = msgspec.structs.replace(peer, kb="papers")
    documents = add(session, items)["data"]["documents"]
    assert [one["kb"] for one in documents] == ["papers", "other", "default"]


def test_all_are_found_and_a_thousand_are_no_problem(session: Session) -> None:
    report = add(session, [item(n, tags=["many"]) for n in range(MOST)])["data"]
    assert (report["added"], report["failed"], report["chunks"]) == (MOST, 0, MOST)
    assert [one["index"] for one in report["documents"]] == list(range(MOST))
    assert len({one["id"] for one in report["documents"]}) == MOST
    for n in (0, 63, 64, 500, MOST - 1):
        answer = session.data("search", query=f"page{n}", mode="fts")
        [hit] = answer["results"]
        assert hit["source"]["title"] == f"Page {n}"
    assert session.data("tag.list") == [{"name": "many", "count": MOST}]
    assert session.data("doctor")["healthy"]


# ---------------------------------------------------------------- what can not be


FAILING: list[tuple[Item, str, str]] = [
    ({"text": ""}, "input.invalid_params", ".text"),
    ({"text": " \n"}, "input.invalid_params", ".text"),
    ({"text": "<p> </p>", "type": "html"}, "operation.failed", ""),
    ({"title": ""}, "input.invalid_params", ".title"),
    ({"title": "a\u202eb"}, "input.invalid_params", ".title"),
    ({"tags": ["ok", "what?"]}, "input.invalid_params", ".tags[1]"),
    ({"metadata": {"k": "v" * 1001}}, "input.invalid_params", ".metadata.k"),
    ({"metadata": {"": 1}}, "input.invalid_params", ".metadata"),
    ({"source_id": "\u202e"}, "input.invalid_params", ".source_id"),
    ({"kb": "defualt"}, "resource.not_found", ".kb"),
    ({"source_id": "taken"}, "resource.already_exists", ".source_id"),
    ({"source_id": "first"}, "resource.already_exists", ".source_id"),
]


def test_what_fails_keeps_no_other_out(session: Session) -> None:
    session.data("doc.create", title="There", text="x", source_id="taken")
    good = [item(0, source_id="first"), item(99)]
    bad = [item(n, **wrong) for n, (wrong, _, _) in enumerate(FAILING, 1)]
    result = add(session, [good[0], *bad, good[1]])
    data, partial = result["data"], result["meta"]["partial"]
    assert (data["added"], data["failed"]) == (2, len(bad))
    assert [one["index"] for one in data["documents"]] == [0, len(bad) + 1]
    assert [one["index"] for one in data["failures"]] == list(range(1, len(bad) + 1))
    for failure, (_, type, member) in zip(data["failures"], FAILING, strict=True):
        place = f"$.params.documents[{failure['index']}]"
        assert (failure["type"], failure["field"]) == (type, place + member)
        assert failure["hint"]
    assert (partial["type"], partial["exit_code"]) == ("operation.partial", 3)
    assert partial["message"] == f"{len(bad)} of {len(bad) + 2} documents could not be added."
    assert partial["first"] == "$.params.documents[1].text is blank."
    assert titles(session) == ["There", "Page 0", "Page 99"]


def test_a_failure_says_what_an_error_would_say(session: Session) -> None:
    session.data("doc.create", title="There", text="x", source_id="taken")
    wrong = [{"kb": "defualt"}, {"source_id": "taken"}, {"text": "<p> </p>", "type": "html"}]
    failures = add(session, [item(1, **one) for one in wrong])["data"]["failures"]
    for failure, one in zip(failures, wrong, strict=True):
        error = session.error("doc.create", **item(1, **one))
        for name in ("type", "message", "hint"):
            assert failure[name] == error[name]
        assert failure.get("valid_values") == error.get("valid_values")
        assert failure.get("detail", {}) == error["detail"]


def test_two_of_one_source_id_are_one_document(session: Session) -> None:
    session.data("kb.create", slug="other")
    items = [
        item(0, source_id="s", kb="nowhere"),
        item(1, source_id="s"),
        item(2, source_id="s"),
        item(3, source_id="s", kb="other"),
        item(4),
        item(5),
    ]
    data = add(session, items)["data"]
    assert [one["index"] for one in data["documents"]] == [1, 3, 4, 5]
    second = data["failures"][1]
    assert second["index"] == 2
    assert second["detail"] == {"id": data["documents"][0]["id"], "revision": 1}
    assert second["detail"]["id"] == session.data("doc.list", source_id="s", kb="default")[0]["id"]


def test_where_none_can_be_added_nothing_is_written(session: Session) -> None:
    before = session.store.seq
    result = add(session, [item(1, kb="nowhere"), item(2, text=" ")])
    assert (result["data"]["added"], result["data"]["failed"]) == (0, 2)
    assert result["meta"]["partial"]["exit_code"] == 3
    assert session.store.seq == before


WRONG_ITEMS: list[tuple[Item, str]] = [
    ({"title": "a" * 301}, "title"),
    ({"title": None}, "title"),
    ({"text": 3}, "text"),
    ({"kb": "No"}, "kb"),
    ({"tags": [f"t{n}" for n in range(17)]}, "tags"),
    ({"tags": ["ok", ""]}, "tags[1]"),
    ({"type": "pdf"}, "type"),
    ({"source_id": ""}, "source_id"),
    ({"metadata": {"k": [1]}}, "metadata[...]"),
    ({"colour": "red"}, "colour"),
]


def test_what_the_schema_refuses_is_refused_as_a_whole(session: Session) -> None:
    others = []
    for wrong, field in WRONG_ITEMS:
        error = session.error("doc.create", documents=[item(1), item(2, **wrong)])
        outcome = (error["type"], error["exit_code"], error["field"], session.store.seq)
        if outcome != ("input.invalid_params", 1, f"$.params.documents[1].{field}", 1):
            others.append((wrong, outcome))
    assert others == []


WRONG_REQUESTS: list[tuple[Item, str]] = [
    ({"documents": []}, "documents"),
    ({"documents": [item(n) for n in range(MOST + 1)]}, "documents"),
    ({"documents": None}, "documents"),
    ({"documents": [item(1, titel="x")]}, "documents[0].titel"),
    ({"documents": [item(1, client_token="x")]}, "documents[0].client_token"),
    ({"documents": [item(1), {"title": "x"}]}, "documents[1].text"),
    ({"documents": [item(1)], "title": "x"}, "title"),
    ({"documents": [item(1)], "text": "x"}, "text"),
    ({"documents": [item(1)], "tags": ["x"]}, "tags"),
    ({"documents": [item(1)], "type": "html"}, "type"),
    ({"documents": [item(1)], "source_id": "x"}, "source_id"),
    ({"documents": [item(1)], "metadata": {"a": 1}}, "metadata"),
    ({}, "title"),
    ({"title": "x"}, "text"),
    ({"text": "x"}, "title"),
]


def test_requests_that_are_none(session: Session) -> None:
    others = []
    for params, field in WRONG_REQUESTS:
        error = session.error("doc.create", **params)
        outcome = (error["type"], error["field"], session.store.seq)
        if outcome != ("input.invalid_params", f"$.params.{field}", 1):
            others.append((params, outcome))
        if field in {"title", "text"} and "documents" not in error["hint"]:
            others.append((params, error["hint"]))
    assert others == []


def test_a_misspelt_member_is_corrected(session: Session) -> None:
    wrong = {"title": "A", "txt": "x"}
    error = session.error("doc.create", documents=[wrong])
    assert error["field"] in {"$.params.documents[0].txt", "$.params.documents[0].text"}
    error = session.error("doc.create", documents=[{"title": "A", "text": "x", "metdata": {}}])
    assert error["valid_values"][0] == "metadata"
    [corrected] = error["retry"]["params"]["documents"]
    assert corrected == {"title": "A", "text": "x", "metadata": {}}


# -------------------------------------------------------------------------- tokens


def test_one_token_for_all(session: Session) -> None:
    items = [item(1), item(2, kb="nowhere"), item(3)]
    first = add(session, items, client_token="t")
    after = session.store.seq
    again = add(session, items, client_token="t")
    assert again["meta"]["duplicate"] is True
    assert (again["data"], again["meta"]["partial"]) == (first["data"], first["meta"]["partial"])
    session.data("kb.create", slug="nowhere")
    assert add(session, items, client_token="t")["data"] == first["data"]
    error = session.error("doc.create", documents=items[:1], client_token="t")
    assert error["type"] == "resource.conflict"
    error = session.error("doc.create", **items[0], client_token="t")
    assert error["type"] == "resource.conflict"
    assert session.store.seq == after + 1  # the record of the knowledge base
    assert titles(session) == ["Page 1", "Page 3"]


def test_a_token_of_which_nothing_could_be_added_tells_so_again(session: Session) -> None:
    first = add(session, [item(1, kb="nowhere")], client_token="t")
    session.data("kb.create", slug="nowhere")
    again = add(session, [item(1, kb="nowhere")], client_token="t")
    assert again["meta"]["duplicate"] is True and again["data"] == first["data"]
    assert titles(session) == []


def test_what_is_hashed_of_a_single_one_is_what_it_was() -> None:
    """Tokens never expire, so new params must not change the hash of an old request."""
    fields = msgspec.to_builtins(msgspec.json.decode(b'{"title":"A","text":"x"}', type=Create))
    assert fields == {
        "client_token": None,
        "dry_run": False,
        "timeout_ms": None,
        "title": "A",
        "text": "x",
        "kb": "default",
        "tags": [],
        "type": "text",
        "source_id": None,
        "metadata": {},
    }


# ------------------------------------------------------------- what comes between


def at_the_third_source(do: Callable[[], None]) -> None:
    """Calls `do` when the third source is about to be written."""
    countdown = itertools.count(2, -1)
    failpoints.arm(lambda name: do() if name == "blob.write" and next(countdown) == 0 else None)


def test_what_is_cancelled_while_it_is_read_leaves_nothing(session: Session) -> None:
    before = session.store.seq
    items = [item(n) for n in range(200)]
    at_the_third_source(lambda: session.send(as_bytes(cancel(1))))
    error = session.error("doc.create", documents=items, client_token="t")
    assert error["type"] == "operation.cancelled"
    assert session.store.seq == before and titles(session) == []
    assert add(session, items, client_token="t")["data"]["added"] == 200


def test_a_disk_that_refuses_one_source_refuses_all(session: Session) -> None:
    def refuse() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    before = session.store.seq
    items = [item(n) for n in range(10)]
    at_the_third_source(refuse)
    error = session.error("doc.create", documents=items, client_token="t")
    assert (error["type"], error["retryable"]) == ("store.io", True)
    assert session.store.seq == before and titles(session) == []
    assert add(session, items, client_token="t")["data"]["added"] == 10


def test_many_are_written_in_the_order_of_arrival(session: Session) -> None:
    many = request("many", "doc.create", documents=[item(n) for n in range(50)])
    requests = [many, *(request(n, "doc.create", **item(n)) for n in range(3))]
    session.data("ping")  # skips earlier notifications
    for one in requests:
        session.send(as_bytes(one))
    answers = [json.loads(session.receive()) for _ in requests]
    assert [answer["id"] for answer in answers] == ["many", 0, 1, 2]
    assert [one["id"] for one in answers[0]["result"]["data"]["documents"]] == [*range(1, 51)]
    assert [answer["result"]["data"]["id"] for answer in answers[1:]] == [51, 52, 53]


# -------------------------------------------------------------------------- dry run


def test_a_dry_run_tells_what_would_be_added(session: Session) -> None:
    session.data("doc.create", title="There", text="x", source_id="taken")
    items = [item(n) for n in range(150)]
    items[7] |= {"source_id": "taken"}
    items[9] |= {"text": " "}
    before = session.store.seq, source_files(session.store.folder)
    result = session.ask("doc.create", documents=items, dry_run=True, client_token="t")["result"]
    fit(result, result_schema(CREATE))
    plan = result["meta"]["plan"]
    assert result["data"] is None
    assert plan["counts"]["added"] == 148 and plan["counts"]["failed"] == 2
    assert plan["counts"]["chunks"] == 148 and plan["counts"]["bytes"] > 148
    assert (len(plan["events"]["items"]), plan["events"]["total"]) == (100, 148)
    assert plan["changes"][0] == "148 added, 2 failed"
    assert plan["changes"][1].startswith("failed: $.params.documents[7].source_id: default has")
    assert plan["changes"][2] == "failed: $.params.documents[9].text is blank."
    assert plan["changes"][3] == "add “Page 0” to default: 1 chunk, 14 bytes"
    assert (session.store.seq, source_files(session.store.folder)) == before
    assert add(session, items, client_token="t")["data"]["added"] == 148


# ---------------------------------------------------------------- what comes after


def test_looking_back_and_undoing(session: Session) -> None:
    before = session.store.seq
    add(session, [item(1), item(2), item(3)])
    after = session.store.seq
    assert titles(session, as_of=before) == []
    session.data("doc.update", id=2, text="other words")
    assert titles(session, as_of=after) == ["Page 1", "Page 2", "Page 3"]
    history = session.data("doc.history", id=2)
    assert [step["revision"] for step in history] == [2, 1]
    assert history[-1]["seq"] == after
    session.data("doc.restore", ids=[2], revision=1)
    assert session.data("doc.get", id=2, text=True)["text"] == "words of page2"
    confirmed(session, "events.revert", seqs=[session.store.seq, session.store.seq - 1, after])
    assert titles(session) == []


def test_one_of_many_can_be_purged(session: Session) -> None:
    items = [item(1, source_id="keep"), item(2, title="Secret"), item(3)]
    add(session, items, client_token="t")
    confirmed(session, "store.purge", document_ids=[2])
    assert titles(session) == ["Page 1", "Page 3"]
    log = b"".join(path.read_bytes() for path in (session.store.folder / "log").iterdir())
    assert b"Secret" not in log and b"page2" not in log and b"page3" in log
    assert session.data("doc.get", id=3, text=True)["text"] == "words of page3"
    error = session.error("doc.create", documents=items, client_token="t")
    assert error["type"] == "resource.not_found" and error["detail"]["duplicate"] is True
    assert session.data("events.verify")["records"] > 0
    assert titles(session) == ["Page 1", "Page 3"]


# -------------------------------------------------------------------------- agents


def test_an_agent_adds_to_what_it_sees(session: Session) -> None:
    for slug in ("mine", "hidden"):
        session.data("kb.create", slug=slug)
    session.data("agent.create", slug="gitea", kbs=["mine"])
    agent = session.another("gitea", named=True)
    items = [item(1, kb="mine"), item(2, kb="hidden"), item(3, kb="absent")]
    data = add(agent, items)["data"]
    assert [one["kb"] for one in data["documents"]] == ["mine"]
    hidden, absent = data["failures"]
    assert hidden["message"].replace("hidden", "absent") == absent["message"]
    assert "hidden" not in hidden.get("valid_values", [])
    assert titles(session) == ["Page 1"]
    session.data("doc.create", title="There", text="x", kb="hidden", source_id="s")
    assert add(agent, [item(4, kb="mine", source_id="s")])["data"]["added"] == 1
    reader = session.another("reader", scopes="doc:read")
    assert reader.error("doc.create", documents=[item(1)])["type"] == "auth.insufficient_scope"


# ------------------------------------------------------------------ any items at all


words = st.text(st.sampled_from("ab \n\u202eé日") | st.characters(codec="utf-8"), max_size=6)
items_ = st.lists(
    st.fixed_dictionaries(
        {"title": words, "text": words},
        optional={
            "kb": st.sampled_from(["default", "other", "nowhere"]),
            "source_id": st.sampled_from(["s1", "s2"]),
            "tags": st.lists(st.sampled_from(["a", "B c", "!"]), max_size=2),
            "type": st.sampled_from(["text", "markdown", "html", "code"]),
        },
    ),
    min_size=1,
    max_size=6,
)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("many")
    session = Session(folder / "store", cwd=folder)
    session.data("kb.create", slug="other")
    yield session
    session.close()


@given(items_)
def test_every_item_is_added_or_told_why_not(world: Session, items: list[Item]) -> None:
    """A failed item fails alone, too, for the same reason."""
    before = world.data("status")["total_documents"]
    data = add(world, items)["data"]
    indexes = sorted(one["index"] for one in (*data["documents"], *data["failures"]))
    assert indexes == list(range(len(items)))
    assert world.data("status")["total_documents"] == before + data["added"]
    for failure in data["failures"]:
        one = items[failure["index"]]
        alone = world.error("doc.create", **one)
        assert alone["type"] == failure["type"]
        place = f"$.params.documents[{failure['index']}]"
        if one["title"] and one["text"]:  # alone, an empty one is refused first
            assert alone.get("field", "$.params") == failure["field"].replace(place, "$.params")
