"""events.revert: undo records of the log, or all that somebody did since some moment."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from kbproc.base.errors import KbprocError
from kbproc.base.params import DestructiveParams
from kbproc.base.settings.config import DEFAULT_KB
from kbproc.base.times import instant
from kbproc.base.values import Instant
from kbproc.engine.store.decision import Decide, Decision, DecisionState
from kbproc.knowledge.history.reversal import Reversal
from kbproc.knowledge.history.revert import revert
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method

MOST_RECORDS = 1000
Seq = Annotated[int, Meta(ge=1, le=2**53, description="record of the log, by seq")]


class Revert(DestructiveParams, kw_only=True, frozen=True):
    seqs: (
        Annotated[list[Seq], Meta(min_length=1, max_length=1000, description="records, by seq")]
        | None
    ) = None
    actor: (
        Annotated[str, Meta(min_length=1, max_length=200, description="all that they did since")]
        | None
    ) = None
    since: (
        Annotated[
            Instant | Annotated[int, Meta(ge=1, le=2**53)],
            Meta(description="RFC 3339 time, or a seq; itself included"),
        ]
        | None
    ) = None
    sessions: Annotated[
        bool, Meta(description="with actor and since: undo questions and answers, too")
    ] = False


@method(
    "events.revert",
    kind="destructive",
    undone_by=("events.revert",),
    whole=True,
    params=Revert,
    result=Reversal,
    summary="Undo records of the log, or all that an actor did since a time.",
    when_to_use="When somebody, or some agent, did what should not have been done. What was "
    "changed again by others later is kept, and the plan says so first. A revert is a record, "
    "too: revert it to do everything again.",
    errors=["input.too_large"],
    examples=[
        Example(params={"seqs": [2]}, what="without a person's approval", exit=10),
        Example(params={"seqs": [2], "dry_run": True}, what="only the plan"),
        Example(params={"actor": "nobody", "since": 1}, what="nothing to undo"),
        Example(params={"seqs": [9_999_999]}, what="a record that is not there", exit=1),
    ],
)
def revert_records(call: Call, params: Revert) -> Decide:
    present = [getattr(params, name) is not None for name in ("seqs", "actor", "since")]
    if present not in ([True, False, False], [False, True, True]):
        raise KbprocError(
            "input.invalid_params",
            "Give either seqs, or actor and since.",
            field="$.params",
            valid_values=["seqs", "actor", "since"],
        )
    since = params.since
    if isinstance(since, str):
        since = instant(since, field="$.params.since")

    def decide(here: DecisionState) -> Decision:
        if params.seqs is not None:
            return revert(here, call.store.log, _existing(here, params.seqs))
        seqs = _seqs_by(here, str(params.actor), since or 1)
        questions: set[int] = set()
        if not params.sessions:
            questions = here.queries.records_of_questions(seqs, DEFAULT_KB)
        selected = [seq for seq in seqs if seq not in questions]
        _check_count(str(params.actor), selected)
        return revert(here, call.store.log, selected, left_out=len(questions))

    return decide


def _existing(here: DecisionState, seqs: list[int]) -> list[int]:
    for index, seq in enumerate(seqs):
        if seq > here.head.seq:
            raise KbprocError(
                "input.invalid_params",
                f"There is no record {seq}: the log ends at seq {here.head.seq}.",
                field=f"$.params.seqs[{index}]",
            )
    return seqs


def _seqs_by(here: DecisionState, actor: str, since: str | int) -> list[int]:
    moment = here.queries.ts_of(since) if isinstance(since, int) else since
    seqs = here.queries.records_by(actor, moment)
    return [seq for seq in seqs if isinstance(since, str) or seq >= since]


def _check_count(actor: str, seqs: list[int]) -> None:
    if len(seqs) > MOST_RECORDS:
        raise KbprocError(
            "input.too_large",
            f"{actor} has written {len(seqs)} records since then; at most {MOST_RECORDS} are "
            "undone at once.",
            field="$.params.since",
            hint=f"Go back in steps, the newest first: since {seqs[-MOST_RECORDS]}.",
            detail={"records": len(seqs), "since": seqs[-MOST_RECORDS]},
        )
