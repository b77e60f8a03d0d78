"""The one pipeline that every write goes through.

Owns: token → decide → dry run? → confirmation? → effect → append, and what an
earlier outcome under the same token means.
Refuses to know: what a method decides, JSON-RPC, scopes (checked before).

A handler only decides: it reads the newest state and returns the events that
should happen. So a preview can't differ from the deed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from kbproc.base.errors import KbprocError
from kbproc.events.event import Event
from kbproc.log.record import same_params
from kbproc.store.decision import Decide, Decision, FindToken, Here, Request
from kbproc.store.lane import Lane
from kbproc.store.plan import Plan, confirm, plan_of
from kbproc.store.state import SeenStore


class Outcome(Struct, frozen=True, kw_only=True):
    """What a write answers; `partial`: some items failed, in words."""

    data: Any = None
    seq: int
    plan: Plan | None = None
    hint: str | None = None
    duplicate: bool = False
    partial: str | None = None


def enter(store: SeenStore, request: Request, decide: Decide) -> Callable[[], Outcome]:
    """A short write: one record, whole or absent.

    It has its place among the writers; what is returned waits for its turn, and must be called.
    A decision that has a method `again` is asked, outside of the lane, whether what has stopped
    it is out of the way now: its turn is waited for here.
    """
    if request.params.dry_run:
        plan = preview(store, request, decide)
        return lambda: plan
    turn = _turn(request, decide)
    again: Callable[[KbprocError], bool] | None = getattr(decide, "again", None)
    if again is None:
        return store.turns.enter(turn)
    outcome = _written_again(store, turn, again)
    return lambda: outcome


def _written_again(
    store: SeenStore, turn: Callable[[Lane], Outcome], again: Callable[[KbprocError], bool]
) -> Outcome:
    while True:
        try:
            return store.commit(turn)
        except KbprocError as error:
            if not again(error):
                raise


def _turn(request: Request, decide: Decide) -> Callable[[Lane], Outcome]:
    def turn(lane: Lane) -> Outcome:
        request.begin()
        if earlier := _earlier(lane.group.token, request):
            return earlier
        decision = decide(_here(lane, request))
        confirm(request, decision)
        _carry_out(lane, decision)
        kept = decision.data if decision.kept is None else decision.kept
        told = _told(kept, decision.partial)
        seq = _append(lane, request, decision.events, told)
        return Outcome(data=decision.data, seq=seq, partial=decision.partial)

    return turn


def _here(lane: Lane, request: Request) -> Here:
    """The newest state, as far as whoever asks may see it."""
    group = lane.group
    look = lambda: lane.queries  # noqa: E731
    return Here(look, lane.now, group.head, group.roster, request.sight, group)


def preview(store: SeenStore, request: Request, decide: Decide) -> Outcome:
    """The plan; nothing is written and no token is used."""
    decision, seq = _foreseen(store, request, decide)
    return Outcome(seq=seq, plan=plan_of(request, decision), hint=decision.hint)


def _foreseen(store: SeenStore, request: Request, decide: Decide) -> tuple[Decision, int]:
    """What would be decided now, and at which position."""
    with store.reading() as snapshot:
        queries, shown = snapshot.queries, snapshot.published
        here = Here(lambda: queries, request.now, shown.head, shown.roster, snapshot.sight)
        return decide(here), snapshot.seq


class LongWrite:
    """A write of several records under one token; the last one holds its outcome.

    `approved`: what was asked for before it began; nothing unless `approve` was called.
    """

    def __init__(self, store: SeenStore, request: Request) -> None:
        self.store = store
        self.request = request
        self.seq = store.published.seq
        self.approved = Decision(events=[], data=None)

    def earlier(self) -> Outcome | None:
        """The outcome of an earlier run that came to its end."""
        if self.request.params.client_token is None:
            return None
        with self.store.reading() as snapshot:
            return _earlier(snapshot.queries.token, self.request)

    def approve(self, decide: Decide) -> None:
        """Before anything is done. Raises input.confirmation_required, resource.plan_stale."""
        self.approved, _ = _foreseen(self.store, self.request, decide)
        if self.approved.events or self.approved.destructive:
            confirm(self.request, self.approved)

    def written(self) -> dict[int, int]:
        """document id → revision, of what an earlier, unfinished run has written."""
        token = self.request.params.client_token
        if token is None:
            return {}
        with self.store.reading() as snapshot:
            return snapshot.queries.written_under(self.request.actor, self.request.method, token)

    def item(self, decide: Decide) -> Any:
        """One item through the lane; returns the decision's data.

        What is destructive of it is confirmed in the lane, too: it may have changed since.
        """

        def turn(lane: Lane) -> tuple[Any, int]:
            # Another run may have taken the token meanwhile.
            _earlier(lane.group.token, self.request)
            decision = decide(_here(lane, self.request))
            if not decision.events:
                return decision.data, lane.head.seq
            confirm(self.request, decision)
            _carry_out(lane, decision)
            return decision.data, _append(lane, self.request, decision.events, None)

        data, self.seq = self.store.commit(turn)
        return data

    def end(self, data: Any, *, partial: str | None = None) -> Outcome:
        """Records the outcome under the token, if there is one."""
        earlier = self._settle(_told(data, partial))
        return earlier or Outcome(data=data, seq=self.seq, partial=partial)

    def _settle(self, outcome: dict[str, Any]) -> Outcome | None:
        """None, or the outcome of another run under the same token that ended first."""

        def turn(lane: Lane) -> Outcome | None:
            earlier = _earlier(lane.group.token, self.request)
            if earlier is None:
                self.seq = _append(lane, self.request, [], outcome)
            return earlier

        if self.request.params.client_token is None or self.store.read_only:
            return None
        return self.store.commit(turn)


def _told(data: Any, partial: str | None) -> dict[str, Any]:
    """The outcome as the log keeps it."""
    return {"data": data} if partial is None else {"data": data, "partial": partial}


def _earlier(find: FindToken, request: Request) -> Outcome | None:
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
    return Outcome(
        data=outcome["data"], seq=row.seq, duplicate=True, partial=outcome.get("partial")
    )


def _carry_out(lane: Lane, decision: Decision) -> None:
    """A file must not change for a record that would be refused."""
    if decision.effect is not None:
        lane.check_writable()
        decision.effect()


def _append(
    lane: Lane, request: Request, events: Sequence[Event], outcome: dict[str, Any] | None
) -> int:
    token = request.params.client_token
    if not events and token is None:
        return lane.head.seq
    return lane.append(
        events,
        actor=request.actor,
        method=request.method,
        token=token,
        params_hash=request.params_hash if token is not None else None,
        result=msgspec.json.encode(outcome) if token is not None and outcome else b"null",
    )
