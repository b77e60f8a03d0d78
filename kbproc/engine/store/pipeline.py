"""Takes every write through one pipeline.

Its steps: token → decide → dry run? → confirmation? → effect → append. A request under a used
token gets the earlier outcome.

A handler only decides: it reads the newest state and returns the events that
should happen. So a preview can't differ from the deed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from kbproc.base.errors import KbprocError
from kbproc.engine.log.record import same_params
from kbproc.engine.store.decision import (
    Decide,
    Decision,
    DecisionState,
    FindToken,
    PartialSuccess,
    WriteRequest,
)
from kbproc.engine.store.plan import Plan, confirm, plan_of

if TYPE_CHECKING:
    from kbproc.engine.events.event import Event
    from kbproc.engine.sources.blobs import NewSource
    from kbproc.engine.store.lane import Lane
    from kbproc.engine.store.state import SeenStore


class Outcome(Struct, frozen=True, kw_only=True):
    """A write's outcome; `partial`: some items failed."""

    data: Any = None
    seq: int
    plan: Plan | None = None
    hint: str | None = None
    duplicate: bool = False
    partial: PartialSuccess | None = None


def enter(store: SeenStore, request: WriteRequest, decide: Decide) -> Callable[[], Outcome]:
    """Queues a short write, which is one record, whole or absent.

    The returned function waits for the write's turn, and must be called. If `decide` has a method
    `again`, this call waits for the turn itself; after an error it asks `again`, outside of the
    lane, whether the obstacle is gone, and then repeats the write.
    """
    if request.params.dry_run:
        plan = preview(store, request, decide)
        return lambda: plan
    turn = _turn(request, decide)
    again: Callable[[KbprocError], bool] | None = getattr(decide, "again", None)
    if again is None:
        return store.turns.enter(turn)
    outcome = _write_with_retries(store, turn, again)
    return lambda: outcome


def _write_with_retries(
    store: SeenStore, turn: Callable[[Lane], Outcome], again: Callable[[KbprocError], bool]
) -> Outcome:
    while True:
        try:
            return store.commit(turn)
        except KbprocError as error:
            if not again(error):
                raise


def _turn(request: WriteRequest, decide: Decide) -> Callable[[Lane], Outcome]:
    def turn(lane: Lane) -> Outcome:
        request.begin()
        if earlier := _earlier_outcome(lane.queries.token, request):
            return earlier
        here = _decision_state(lane, request)
        decision = decide(here)
        confirm(request, decision)
        _carry_out(lane, decision)
        logged_data = decision.data if decision.kept is None else decision.kept
        outcome = _as_logged(logged_data, decision.partial)
        seq = _append(
            lane, request, request.with_approval(decision.events), outcome, here.new_sources
        )
        return Outcome(data=decision.data, seq=seq, partial=decision.partial)

    return turn


def _decision_state(lane: Lane, request: WriteRequest) -> DecisionState:
    """Returns the newest state, as far as the request's sight allows."""
    group = lane.group
    return DecisionState(
        lane.queries, lane.now, group.head, group.roster, request.sight, request.origin
    )


def preview(store: SeenStore, request: WriteRequest, decide: Decide) -> Outcome:
    """Returns the plan; nothing is written and no token is used."""
    decision, seq = _decide_on_snapshot(store, request, decide)
    return Outcome(seq=seq, plan=plan_of(request, decision), hint=decision.hint)


def _decide_on_snapshot(
    store: SeenStore, request: WriteRequest, decide: Decide
) -> tuple[Decision, int]:
    """Returns the decision by the published state, and that state's seq."""
    with store.reading_as(request.sight) as snapshot:
        queries, published = snapshot.queries, snapshot.published
        here = DecisionState(
            queries,
            request.now,
            published.head,
            published.roster,
            request.sight,
            request.origin,
        )
        return decide(here), snapshot.seq


class LongWrite:
    """A write of several records under one token; the last one holds its outcome.

    `approved`: the decision that `approve` has confirmed; empty before.
    """

    def __init__(self, store: SeenStore, request: WriteRequest) -> None:
        self.store = store
        self.request = request
        self.seq = store.published.seq
        self.approved = Decision(events=[], data=None)
        self._names_approval = False

    def earlier(self) -> Outcome | None:
        """Returns the outcome of an earlier run that came to its end, or None."""
        if self.request.params.client_token is None:
            return None
        with self.store.reading() as snapshot:
            return _earlier_outcome(snapshot.queries.token, self.request)

    def approve(self, decide: Decide) -> None:
        """Confirms the whole write before it begins.

        Raises input.confirmation_required, resource.plan_stale.
        """
        self.approved, _ = _decide_on_snapshot(self.store, self.request, decide)
        if self.approved.events or self.approved.destructive:
            confirm(self.request, self.approved)

    def written(self) -> dict[int, int]:
        """Returns document id → revision, as an earlier, unfinished run has written them."""
        token = self.request.params.client_token
        if token is None:
            return {}
        with self.store.reading() as snapshot:
            return snapshot.queries.written_under(self.request.actor, self.request.method, token)

    def item(self, decide: Decide) -> Any:
        """Writes one item through the lane; returns the decision's data.

        A destructive item is confirmed in the lane again, because it may have changed since.
        """

        def write_item(lane: Lane) -> tuple[Any, int]:
            # Another run may have used the token with other params since this one began.
            _earlier_outcome(lane.queries.token, self.request)
            here = _decision_state(lane, self.request)
            decision = decide(here)
            if not decision.events:
                return decision.data, lane.head.seq
            confirm(self.request, decision)
            _carry_out(lane, decision)
            events = self._with_approval(decision.events)
            seq = _append(lane, self.request, events, None, here.new_sources)
            return decision.data, seq

        data, self.seq = self.store.commit(write_item)
        return data

    def _with_approval(self, events: Sequence[Event]) -> Sequence[Event]:
        """Returns the events, with the approval in the first record only."""
        if self._names_approval or not events:
            return events
        self._names_approval = True
        return self.request.with_approval(events)

    def end(self, data: Any, *, partial: PartialSuccess | None = None) -> Outcome:
        """Records the outcome under the token, if there is one."""
        earlier = self._settle(_as_logged(data, partial))
        return earlier or Outcome(data=data, seq=self.seq, partial=partial)

    def _settle(self, outcome: dict[str, Any]) -> Outcome | None:
        """Records the outcome; returns that of another run under the token if it ended first."""

        def write_outcome(lane: Lane) -> Outcome | None:
            earlier = _earlier_outcome(lane.queries.token, self.request)
            if earlier is None:
                self.seq = _append(lane, self.request, [], outcome)
            return earlier

        if self.request.params.client_token is None or self.store.read_only:
            return None
        return self.store.commit(write_outcome)


def _as_logged(data: Any, partial: PartialSuccess | None) -> dict[str, Any]:
    """Returns the outcome as the log keeps it."""
    if partial is None:
        return {"data": data}
    first = {} if partial.first is None else {"first": partial.first}
    return {"data": data, "partial": partial.message, **first}


def _earlier_outcome(find: FindToken, request: WriteRequest) -> Outcome | None:
    token = request.params.client_token
    if token is None:
        return None
    row = find(request.actor, request.method, token)
    if row is None:
        return None
    if not same_params(row.params_hash, row.salt, request.params_hash):
        raise KbprocError(
            "resource.conflict",
            "This client_token was used with other params.",
            field="$.params.client_token",
            hint="Use a new token for a new request; repeat the old params to get the old outcome.",
            seq=row.seq,
        )
    if row.result is None:
        return None
    outcome = msgspec.json.decode(row.result)
    if "error" in outcome:
        failure = outcome["error"]
        raise KbprocError(
            failure["type"],
            failure["message"],
            seq=row.seq,
            detail={**failure["detail"], "duplicate": True},
        )
    partial = None
    if "partial" in outcome:
        partial = PartialSuccess(message=outcome["partial"], first=outcome.get("first"))
    return Outcome(data=outcome["data"], seq=row.seq, duplicate=True, partial=partial)


def _carry_out(lane: Lane, decision: Decision) -> None:
    """Runs the decision's effect if records can be written.

    A file must not change for a record that would be refused.
    """
    if decision.effect is not None:
        lane.check_writable()
        decision.effect()


def _append(
    lane: Lane,
    request: WriteRequest,
    events: Sequence[Event],
    outcome: dict[str, Any] | None,
    sources: Sequence[NewSource] = (),
) -> int:
    token = request.params.client_token
    if not events and token is None:
        return lane.head.seq
    return lane.append(
        events,
        sources,
        actor=request.actor,
        method=request.method,
        token=token,
        params_hash=request.params_hash if token is not None else None,
        result=msgspec.json.encode(outcome) if token is not None and outcome else b"null",
    )
