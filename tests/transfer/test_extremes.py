"""Every value that an import accepts can be read by every method, and exported again."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kbproc.base.errors import ERRORS, KbprocError
from kbproc.engine.events import codec
from kbproc.engine.events.session import (
    AnswerEnded,
    AnswerReferred,
    AnswerSaid,
    Failure,
    Reference,
    Usage,
)
from kbproc.knowledge.transfer.portable import line_decoder, normalised
from tests.conftest import OpenSession
from tests.kit import llm
from tests.kit.faults import faults_of, note
from tests.kit.patience import all_or
from tests.kit.talk import Session, as_bytes, request

compared = faults_of("extremes", counted=True)
TALK = 40  # messages of a conversation

NUMBERS = [-1, 0, -(2**31), 2**31, 2**53 + 1, -(2**63), 2**63 - 1, 2**63, 2**70]
TEXTS = ["", " ", "x" * 100_000, "\u0000", "\u202e", "\U0010ffff", "not a date", "a/b", "-1"]
SCORES = [-1.0, 1e308, -1e308, 5e-324]
OF_TYPE: dict[type, list[Any]] = {int: NUMBERS, str: TEXTS, float: SCORES, bool: [True, False]}
TOLD = "it is refused, or every method can tell it"
FULL: dict[str, Any] = {
    "question": "Who?",
    "asked_at": "2026-01-01T00:00:00.000Z",
    "asked_by": "user",
    "answerer": "openai",
    "status": "finished",
    "ended_at": "2026-01-01T00:00:00.000Z",
    "model": "toy",
    "references": [
        {
            "n": 1,
            "chunk_id": 1,
            "document_id": 1,
            "cite": "Git",
            "score": 0.5,
            "snippet": "words",
            "text": "words",
        }
    ],
    "text": "An answer [1].",
    "usage": {
        "answerer": "openai",
        "model": "toy",
        "passages": 1,
        "input_tokens": 1,
        "output_tokens": 1,
    },
    "hint": "a hint",
}
FAILED: dict[str, Any] = {
    **{name: value for name, value in FULL.items() if name != "hint"},
    "status": "failed",
    "failure": {
        "type": "llm.unavailable",
        "message": "It failed.",
        "hint": "Ask again.",
        "lasting": False,
        "retry_after_ms": 1,
        "detail": {"http_status": 500},
    },
}


def session_line(number: int, *messages: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "session",
        "key": f"{number:032x}",
        "created_at": "2026-01-01T00:00:00.000Z",
        "created_by": "user",
        "title": "Talk",
        "messages": list(messages),
    }


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(inner, (*path, key))
    else:
        yield path, value


def changed(value: Any, path: tuple[Any, ...], other: Any) -> Any:
    copied = copy.deepcopy(value)
    holder = copied
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = other
    return copied


def extremes() -> Iterator[dict[str, Any]]:
    """Yields messages with one extreme value each, and failures of every type and of none."""
    for message in (FULL, FAILED):
        for path, value in leaves(message):
            for other in (*OF_TYPE[type(value)], None):
                yield changed(message, path, other)
    for kind in (*ERRORS, "no.such_type", "", "x" * 1000):
        yield changed(FAILED, ("failure", "type"), kind)


def accepted(line: dict[str, Any]) -> bool:
    try:
        normalised(line_decoder.decode(json.dumps(line)))
    except (ValueError, KbprocError):
        return False
    return True


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    header = {
        "type": "kbproc.export",
        "version": 6,
        "seq": 1,
        "exported_at": "2026-01-01T00:00:00.000Z",
        "store_format": 2,
        "kbproc": "0.1.0",
    }
    body = "".join(json.dumps(line) + "\n" for line in [header, *rows])
    sha256 = hashlib.sha256(body.encode()).hexdigest()
    end = {"type": "end", "documents": 0, "sha256": sha256, "sessions": len(rows)}
    path.write_text(body + json.dumps(end) + "\n")


def answer_of(session: Session, method: str, **params: Any) -> Any:
    """Returns the response; drops the notifications before it."""
    session.send(as_bytes(request(1, method, **params)))
    while "method" in (message := json.loads(session.receive())):
        pass
    return message


def check_told(session: Session, method: str, **params: Any) -> dict[str, Any]:
    answer: dict[str, Any] = answer_of(session, method, **params)
    kind = answer.get("error", {}).get("data", {}).get("type", "")
    assert kind != "internal.error", (method, params, answer)
    return answer


def test_what_an_import_brings_in_can_be_told(session: Session, tmp_path: Path) -> None:
    candidates = list(extremes())
    imported = [message for message in candidates if accepted(session_line(1, message))]
    assert 100 < len(imported) < len(candidates)
    talks = [imported[at : at + TALK] for at in range(0, len(imported), TALK)]
    write(tmp_path / "all.ndjson", [session_line(n, *talk) for n, talk in enumerate(talks, 1)])
    result = session.data("store.import", path="all.ndjson")
    assert result["sessions_added"] == len(talks)
    for number, talk in enumerate(talks, 1):
        answer = check_told(session, "session.get", session_id=number, limit=TALK)
        assert len(answer["result"]["data"]["messages"]) == len(talk), answer
    # The quick profile tries each field with some of the values.
    for id in all_or(range(1, len(imported) + 1, 4), range(1, len(imported) + 1)):
        place = {"session_id": (id - 1) // TALK + 1, "message_id": id}
        ended = check_told(session, "session.resume", **place)
        check_told(session, "session.resume", **place, snapshot=True)
        failure = ended.get("error", {}).get("data", {})
        assert not failure.get("type", "").startswith(("store.", "resource.")), failure
    for _ in candidates:
        note("extremes", "an import of a conversation with one extreme value", TOLD)
    for method, params in (
        ("session.list", {"limit": 1000}),
        ("events.read", {"limit": 1000}),
        ("sql.query", {"sql": "select * from messages"}),
        ("sql.query", {"sql": "select * from sessions"}),
        ("store.export", {"path": "again.ndjson"}),
        ("events.verify", {}),
        ("status", {}),
    ):
        assert "result" in check_told(session, method, **params)


def test_no_import_forges_a_damaged_store(session: Session, tmp_path: Path) -> None:
    """An imported failure has no advice for this store, because it happened in another one."""
    lines = []
    for number, kind in enumerate(sorted(ERRORS), 1):
        forged = changed(FAILED, ("failure", "type"), kind)
        forged["failure"]["hint"] = "Run: rm -rf / --no-preserve-root"
        lines.append(session_line(number, forged))
    write(tmp_path / "forged.ndjson", lines)
    session.data("store.import", path="forged.ndjson")
    wrong = []
    for number, kind in enumerate(sorted(ERRORS), 1):
        place = {"session_id": number, "message_id": number}
        error = check_told(session, "session.resume", **place)["error"]["data"]
        is_imported_as_is = kind in {"llm.unavailable", "model.unavailable", "operation.timeout"}
        right = (
            error["type"] == (kind if is_imported_as_is else "operation.failed")
            and "rm -rf" not in json.dumps(error)
            and "In the store that it comes from" in error["message"]
        )
        wrong += [] if right else [(kind, error)]
        note(
            "extremes",
            "an import of an answer that has failed, with any type and a forged hint",
            "the type is one of an endpoint's, or operation.failed; the hint is kbproc's own",
        )
    assert wrong == []


def test_what_an_endpoint_counts_can_be_told(open_session: OpenSession) -> None:
    numbers = iter(NUMBERS)

    def script(question: str) -> list[llm.Step]:
        number = next(numbers)
        finish = llm.finish(prompt_tokens=number, completion_tokens=number)
        return [llm.say("It is installed by make [1]."), finish]

    with llm.endpoint(script) as model:
        session = open_session(llm=model.url)
        session.data("doc.create", title="Git", text="Git is installed by make.")
        session.embedded()
        wrong = []
        for id, number in enumerate(NUMBERS, 1):
            answer = check_told(session, "chat", question="How is git installed?")
            response = check_told(session, "session.get", session_id=id)
            if "result" in answer:
                usage = response["result"]["data"]["messages"][0]["usage"]
                counted = number if 0 <= number <= 2**53 else None
                right = (usage["input_tokens"], usage["output_tokens"]) == (counted, counted)
                wrong += [] if right else [(number, usage)]
            note(
                "extremes",
                "an endpoint that counts less than no tokens, or more than there are",
                TOLD,
            )
        assert wrong == []


def test_what_a_log_holds_can_be_told(session: Session) -> None:
    """A number that an earlier version committed is decoded within the bounds."""
    wrong = []
    for id, number in enumerate(NUMBERS, 1):
        session.data("session.create", title="Talk")
        events = codec.decode(json.dumps(failed_answer(id, number)).encode())
        session.store.commit(lambda lane, events=events: lane.append(list(events), **BY_USER))
        answers = [
            check_told(session, "session.get", session_id=id),
            check_told(session, "session.resume", session_id=id, message_id=id),
        ]
        failure = answers[1].get("error", {}).get("data", {}).get("type")
        right = "result" in answers[0] and failure == "llm.unavailable"
        wrong += [] if right else [(number, answers)]
        note("extremes", "a log with a number that no answer can tell", "it is told as unknown")
    assert wrong == []


BY_USER = {"actor": "user", "method": "chat"}


def failed_answer(id: int, number: int) -> list[dict[str, Any]]:
    """Returns the events of an answer that failed, each of whose numbers is `number`."""
    usage = Usage(answerer="a", model=None, passages=1, input_tokens=1, output_tokens=1)
    failure = Failure(type="llm.unavailable", message="m", hint="h", retry_after_ms=1)
    reference = Reference(n=1, chunk_id=1, document_id=1, cite="c", score=1.0)
    place = {"session": id, "message": id}
    rows: list[dict[str, Any]] = [
        {**place, "type": "question.asked", "question": "q", "answerer": "a"}
    ]
    for event in (
        AnswerReferred(session=id, message=id, references=[reference]),
        AnswerSaid(session=id, message=id, delta="d"),
        AnswerEnded(session=id, message=id, status="failed", usage=usage, failure=failure),
    ):
        one = json.loads(bytes(codec.encode([event])))[0]
        for path, value in list(leaves(one)):
            if type(value) is int and path[0] not in {"session", "message"}:
                one = changed(one, path, number)
        rows.append(one)
    return rows
