"""The request that an error suggests succeeds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kbproc.base.errors import KbprocError
from kbproc.methods.all import registry
from kbproc.methods.calls.registry import ALIASES
from kbproc.methods.calls.retry import with_retry
from tests.conftest import OpenSession
from tests.kit.talk import Session


@pytest.fixture
def session(open_session: OpenSession) -> Session:
    return open_session(model="hash")


def retried(session: Session, error: dict[str, Any]) -> dict[str, Any]:
    retry = error["retry"]
    answer: dict[str, Any] = session.ask(retry["method"], **retry["params"])
    return answer


MEANT: list[tuple[str, dict[str, Any]]] = [
    ("doc.lst", {"limit": 3}),
    ("list", {}),
    ("kb.ls", {}),
    ("kb.show", {"slug": "default"}),
    ("kb.get", {"slgu": "default"}),
    ("kb.get", {"slug": "defualt"}),
    ("search", {"query": "x", "mode": "fst"}),
    ("search", {"query": "x", "kb": "defualt"}),
    ("search", {"query": "x", "types": ["text", "pfd"]}),
    ("doc.list", {"cursor": "nonsense"}),
    ("describe", {"method": "serach"}),
    ("schema", {"name": "ping.results"}),
]


def test_what_was_meant_is_the_retry(session: Session) -> None:
    for method, params in MEANT:
        error = session.error(method, **params)
        assert "result" in retried(session, error), (method, params, error)


def test_one_path_where_a_list_is_needed_is_retried_in_a_list(
    session: Session, tmp_path: Path
) -> None:
    (tmp_path / "a.md").write_text("Cranes.")
    requests: list[dict[str, Any]] = [
        {"path": "a.md"},
        {"file": "a.md"},
        {"paths": "a.md"},
        {"path": ["a.md"]},
    ]
    for params in requests:
        error = session.error("doc.ingest", **params)
        assert error["retry"]["params"] == {"paths": ["a.md"]}, params
    assert retried(session, error)["result"]["data"]["added"] == 1


NOT_NEAR: list[tuple[str, dict[str, Any]]] = [
    ("chat", {}),
    ("xyzzy", {}),
    ("kb.get", {"slug": "xyzzy"}),
    ("kb.get", {}),
    ("kb.get", {"name": ["default"]}),
    ("doc.ingest", {"paths": 7}),
    ("doc.delete", {"ids": "7"}),
    ("search", {"query": "x", "limit": 0}),
    ("search", {"query": "x", "": 1}),
    ("kb.create", {"slug": "ab", ".[]": 1}),
    ("model.use", {"name": "x", "knid": "hash", "api_key": "k"}),
]


def test_where_nothing_is_near_there_is_none(session: Session) -> None:
    errors = [(method, params, session.error(method, **params)) for method, params in NOT_NEAR]
    assert [one for one in errors if "retry" in one[2]] == []


def test_of_two_that_are_as_near_none_is_guessed(session: Session) -> None:
    for slug in ("books-a", "books-b"):
        session.data("kb.create", slug=slug)
    error = session.error("kb.get", slug="books-c")
    assert set(error["valid_values"]) >= {"books-a", "books-b"} and "retry" not in error


def test_every_alias_leads_to_its_method(session: Session) -> None:
    declared = registry()
    for name in declared.methods:
        noun, dot, verb = name.partition(".")
        for alias, target in ALIASES.items():
            if dot and target == verb and f"{noun}.{alias}" not in declared.methods:
                error = session.error(f"{noun}.{alias}")
                assert error["retry"] == {"method": name, "params": {}}
                assert error["valid_values"][0] == name


def test_a_stale_plan_is_asked_for_again(session: Session) -> None:
    session.data("doc.create", title="A", text="x")
    error = session.error("doc.delete", ids=[1], confirm="stale")
    assert error["type"] == "resource.plan_stale"
    plan = retried(session, error)["result"]["meta"]["plan"]
    assert "retry" not in session.error("doc.delete", ids=[1])
    session.data("doc.delete", ids=[1], confirm=plan["plan_hash"])


def test_a_wait_that_ran_out_can_be_waited_again(session: Session) -> None:
    for method, params in (("ping", {"min_seq": 99, "timeout_ms": 0}), ("doc.wait", {"ids": [99]})):
        error = session.error(method, **params)
        if error["type"] == "operation.timeout":
            longer = {**params, "timeout_ms": 1000} if "timeout_ms" in params else params
            assert error["retry"] == {"method": method, "params": longer}


@pytest.mark.parametrize(
    "timeout_ms, detail, proposed",
    [
        (30_000, {}, 60_000),
        (30_000, {"needed_ms": 95_000}, 95_000),
        (30_000, {"needed_ms": 5_000}, 60_000),
        (0, {}, 1000),
        (86_400_000, {}, 86_400_000),
    ],
)
def test_a_wait_that_ran_out_proposes_a_longer_time(
    timeout_ms: int, detail: dict[str, int], proposed: int
) -> None:
    error = KbprocError("operation.timeout", "Too slow.", detail=detail)
    raw = f'{{"timeout_ms":{timeout_ms}}}'.encode()
    retry = with_retry(error, registry(), "doc.wait", raw).retry
    assert retry is not None and retry.params == {"timeout_ms": proposed}


def test_a_write_is_given_up_for_good_unless_it_happens_once() -> None:
    def retry(method: str, raw: bytes) -> Any:
        error = KbprocError("operation.timeout", "Too slow.")
        return with_retry(error, registry(), method, raw).retry

    assert retry("doc.create", b'{"title":"t","text":"x"}') is None
    assert retry("doc.create", b'{"title":"t","text":"x","client_token":"a"}') is not None
    assert retry("search", b'{"query":"x"}') is not None
    assert retry("search", b'{"query":"' + b"x" * (16 << 10) + b'"}') is None
    assert retry("search", b"[1]") is None


def test_what_will_not_get_better_says_so(session: Session, tmp_path: Path) -> None:
    (tmp_path / "closed").write_text("a file")
    for method, params in (
        ("doc.fetch", {"url": "ftp://example.org"}),
        ("model.use", {"name": "no-such-model"}),
        ("store.export", {"path": "closed/x"}),
    ):
        error = session.error(method, **params)
        assert error["retryable"] is False, error
