"""A request is checked, read or written by its method's kind, and answered with its meta."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from msgspec import UNSET

from kbproc.base.errors import KbprocError
from kbproc.base.params import LeanParams, Params
from kbproc.base.settings.config import SCOPES
from kbproc.engine.projections.catalog.rows import AgentRow, Roster
from kbproc.engine.store.decision import PartialSuccess
from kbproc.engine.store.pipeline import Outcome
from kbproc.methods.all import registry as all_methods
from kbproc.methods.calls.call import Call, Peer
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.registry import Registry
from kbproc.methods.calls.reply import Answer, Entered, Parked, Partial, Reply, Wait
from kbproc.methods.calls.run import check_person, reply_of, run, who_gives
from tests.kit.fixed import FixedHost
from tests.kit.talk import Session

EXAMPLES = [Example(params={}, what="nothing")]
FACTS: dict[str, Any] = {
    "summary": "Test.",
    "when_to_use": "Never.",
    "examples": EXAMPLES,
    "needs_store": False,
}


class Kb(Params, kw_only=True, frozen=True):
    kb: str = "default"


class Prefixed(Params, kw_only=True, frozen=True):
    path_prefix: str | None = None
    where: Where | None = None


class Where(msgspec.Struct, kw_only=True, frozen=True):
    path_prefix: str | None = None


class Members(msgspec.Struct, kw_only=True):
    id: int
    title: str


class Waiting(Params, kw_only=True, frozen=True):
    timeout_ms: int | None = None


@method("kb", params=Kb, result=str, scope="doc:read", **FACTS)
def kb(call: Call, params: Kb) -> Reply:
    return Reply(data=params.kb)


@method("prefixed", params=Prefixed, result=Any, scope="doc:read", **FACTS)
def prefixed(call: Call, params: Prefixed) -> Reply:
    where = None if params.where is None else params.where.path_prefix
    return Reply(data=[params.path_prefix, where])


@method("members", params=LeanParams, result=Members, scope="doc:read", **FACTS)
def members(call: Call, params: LeanParams) -> Reply:
    return Reply(data=Members(id=1, title="T"), seq=4, notice=["late"])


@method(
    "own",
    params=Kb,
    result=str,
    scope="doc:write",
    own_scope="note:write",
    **{**FACTS, "needs_store": True},
)
def own(call: Call, params: Kb) -> Reply:
    return Reply(data="written", seq=1)


@method("both", params=Kb, result=str, scope="doc:read", also_needs="admin", **FACTS)
def both(call: Call, params: Kb) -> Reply:
    return Reply(data="done")


@method("waiting", params=Waiting, result=str, scope="doc:read", **FACTS)
def waiting(call: Call, params: Waiting) -> Wait:
    return Wait(
        ready=lambda: True,
        resume=lambda: Reply(data="ready"),
        timeout_ms=params.timeout_ms,
        expired=lambda: KbprocError("operation.timeout", "late"),
        lasts=True,
    )


@method(
    "reading", params=LeanParams, result=str, scope="doc:read", **{**FACTS, "needs_store": True}
)
def reading(call: Call, params: LeanParams) -> Reply:
    return Reply(data="read")


def peer(*scopes: str, **more: Any) -> Peer:
    facts: dict[str, Any] = {"actor": "ann", "cwd": Path("/work"), "root": None, "kb": "default"}
    return Peer(**{**facts, "scopes": frozenset(scopes or ("doc:read",)), **more})


class FakeStore:
    """A store at a position, with the agent gull and a warning."""

    def __init__(self, seq: int) -> None:
        facts: dict[str, Any] = dict.fromkeys(AgentRow.__struct_fields__)
        gull = AgentRow(**{**facts, "slug": "gull", "quotas": "{}"})
        roster = Roster({"gull": gull}, (), (), (), frozenset(), [], [])
        self.published = SimpleNamespace(seq=seq, roster=roster)

    def warnings(self) -> list[str]:
        return ["The disk is full."]


def call_of(peer: Peer, store: FakeStore | None = None) -> Call:
    return Call(
        registry=Registry.of(sys.modules[__name__]),
        host=FixedHost(),
        peer=peer,
        open_library=lambda: cast(Any, SimpleNamespace(store=store)),
        emit=lambda name, fields: None,
        now="2026-01-01T00:00:00.000Z",
    )


def answer(call: Call, name: str, raw: bytes = b"{}") -> Answer:
    outcome = run(call, name, raw)
    assert isinstance(outcome, Answer)
    return outcome


def refusal(call: Call, name: str, raw: bytes = b"{}") -> KbprocError:
    with pytest.raises(KbprocError) as error:
        run(call, name, raw)
    return error.value


# ------------------------------------------------------------------------ params


@pytest.mark.parametrize(
    ("connection", "raw", "kb"),
    [
        ("default", b"{}", "default"),
        ("birds", b"{}", "birds"),
        ("birds", b'{"kb":"default"}', "default"),
        ("birds", b'{"kb":"lakes"}', "lakes"),
    ],
)
def test_a_request_without_a_knowledge_base_takes_that_of_its_connection(
    connection: str, raw: bytes, kb: str
) -> None:
    assert answer(call_of(peer(kb=connection)), "kb", raw).data == kb


@pytest.mark.parametrize(
    ("prefix", "path"),
    [
        (None, None),
        ("docs", "/work/docs"),
        ("/docs", "/docs"),
        ("~/docs", "~/docs"),
        ("file:///docs", "/docs"),
    ],
)
def test_a_relative_path_prefix_begins_in_the_callers_folder(
    prefix: str | None, path: str | None
) -> None:
    raw = msgspec.json.encode({"path_prefix": prefix, "where": {"path_prefix": prefix}})
    assert answer(call_of(peer()), "prefixed", raw).data == [path, path]


def test_unknown_methods_params_and_fields_are_refused() -> None:
    call = call_of(peer())
    assert refusal(call, "kbs").type == "input.unknown_method"
    assert refusal(call, "kb", b"[").type == "input.invalid_params"
    assert refusal(call, "kb", b'{"x":1}').type == "input.invalid_params"
    error = refusal(call, "members", b'{"fields":["titel"]}')
    assert (error.field, error.valid_values) == ("$.params.fields[0]", ["title"])


# ------------------------------------------------------------------------ scopes


def test_a_missing_scope_is_named_with_those_that_the_caller_has() -> None:
    error = refusal(call_of(peer("kb:read", "admin")), "kb")
    assert error.type == "auth.insufficient_scope"
    assert error.message == "kb needs the scope doc:read."
    assert error.detail == {"needed": "doc:read", "scopes": ["admin", "kb:read"]}
    assert error.hint == "The person who starts kbproc serve can add doc:read to its --scopes."
    assert refusal(call_of(peer()), "both").detail["needed"] == "admin"
    assert answer(call_of(peer("doc:read", "admin")), "both").data == "done"


def test_a_scope_for_ones_own_things_is_enough_for_an_agent_alone() -> None:
    store = FakeStore(seq=5)
    assert answer(call_of(peer("note:write", actor="gull"), store), "own").data == "written"
    for actor in ("user", "ann"):
        error = refusal(call_of(peer("note:write", actor=actor), store), "own")
        assert error.detail["needed"] == "doc:write"


@pytest.mark.parametrize(
    ("surface", "hint"),
    [
        (
            "mcp",
            "A person can add it where kbproc mcp is started: kbproc mcp --scopes +doc:write.",
        ),
        ("serve", "The person who starts kbproc serve can add doc:write to its --scopes."),
        ("shell", None),
    ],
)
def test_the_hint_says_who_can_give_a_scope(surface: str, hint: str | None) -> None:
    assert who_gives(call_of(peer(surface=surface)), "doc:write") == hint


def test_the_scope_of_an_agent_is_given_by_the_person_who_looks_after_it() -> None:
    call = call_of(peer("doc:write"))
    call.agent = cast(Any, SimpleNamespace(slug="gull"))
    assert who_gives(call, "doc:write") == (
        "Agent gull lacks it; the person who looks after it can give it: agent.update."
    )
    assert who_gives(call, "kb:write") == (
        "The person who starts kbproc serve can add kb:write to its --scopes."
    ), "its process lacks this one, too"


def test_no_program_of_an_agent_decides_on_plans() -> None:
    check_person(call_of(peer(surface="serve")))
    with pytest.raises(KbprocError) as error:
        check_person(call_of(peer(surface="mcp")))
    assert error.value.type == "auth.insufficient_scope"


# ------------------------------------------------------------------------ answers


def test_an_answer_has_the_meta_of_its_reply_and_only_the_fields_asked_for() -> None:
    whole = answer(call_of(peer()), "members")
    assert (whole.data, whole.meta.schema) == (Members(id=1, title="T"), "members/1")
    assert (whole.meta.seq, whole.meta.notice, whole.meta.lean) == (4, ["late"], UNSET)
    assert whole.meta.took_ms == 0.0
    short = answer(call_of(peer()), "members", b'{"fields":["title"]}')
    assert (short.data, short.meta.lean) == ({"title": "T"}, True)


def test_a_wait_is_parked_with_its_own_limits() -> None:
    outcome = run(call_of(peer()), "waiting", b'{"timeout_ms":7}')
    assert isinstance(outcome, Parked)
    assert (outcome.timeout_ms, outcome.lasts, outcome.ready()) == (7, True, True)
    resumed = outcome.resume()
    assert isinstance(resumed, Answer) and resumed.data == "ready"
    assert resumed.meta.seq == 0, "it needs no store"


def test_a_read_waits_for_the_position_that_it_asks_for() -> None:
    store = FakeStore(seq=5)
    call = call_of(peer(), store)
    now = answer(call, "reading", b'{"min_seq":5}')
    assert (now.data, now.meta.seq, now.meta.notice) == ("read", 5, ["The disk is full."])
    later = run(call, "reading", b'{"min_seq":6,"timeout_ms":20}')
    assert isinstance(later, Parked) and not later.ready()
    error = later.expired()
    assert (error.type, error.field, error.seq) == ("operation.timeout", "$.params.min_seq", 5)
    assert error.message == "Position 6 was not reached in 20 ms."
    store.published.seq = 6
    assert later.ready()
    endless = run(call, "reading", b'{"min_seq":7}')
    assert isinstance(endless, Parked)
    assert endless.expired().message == "Position 7 was not reached."


@pytest.mark.parametrize(
    ("partial", "expected"),
    [
        (None, None),
        (PartialSuccess(message="1 of 2 failed"), Partial(message="1 of 2 failed")),
        (
            PartialSuccess(message="2 of 2 failed", first="no"),
            Partial(message="2 of 2 failed", first="no"),
        ),
    ],
)
def test_a_write_that_failed_in_part_says_how_many_and_the_first(
    partial: PartialSuccess | None, expected: Partial | None
) -> None:
    reply = reply_of(Outcome(data=1, seq=9, hint="h", partial=partial))
    assert (reply.data, reply.seq, reply.hint, reply.partial) == (1, 9, "h", expected)
    assert reply.duplicate is None
    assert reply_of(Outcome(seq=9, duplicate=True)).duplicate is True


def test_a_write_is_previewed_carried_out_or_refused_without_its_confirmation(
    session: Session,
) -> None:
    call = Call(
        registry=all_methods(),
        host=FixedHost(),
        peer=peer(*SCOPES),
        open_library=lambda: session.library,
        emit=lambda name, fields: None,
        now="2026-01-01T00:00:00.000Z",
        gathers=True,
    )
    before = session.store.seq
    preview = run(call, "kb.create", b'{"slug":"birds","dry_run":true}')
    assert isinstance(preview, Entered)
    plan = preview.end()
    assert (plan.data, plan.meta.dry_run, session.store.seq) == (None, True, before)
    entered = run(call, "kb.create", b'{"slug":"birds"}')
    assert isinstance(entered, Entered), "several writes may share a commit"
    written = entered.end()
    assert (written.data.slug, written.meta.seq, written.meta.dry_run) == (
        "birds",
        before + 1,
        UNSET,
    )
    session.data("doc.create", title="T", text="x", kb="birds")
    deletion = run(call, "doc.delete", b'{"ids":[1]}')
    assert isinstance(deletion, Entered)
    with pytest.raises(KbprocError) as error:
        deletion.end()
    assert error.value.type == "input.confirmation_required"
    question = run(call, "chat", b'{"question":"Who?","dry_run":true}')
    assert isinstance(question, Answer), "a write of several records plans at once"
    assert (question.data, question.meta.dry_run) == (None, True)
