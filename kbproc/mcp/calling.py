"""One call of a tool, from its arguments to its result.

Owns: the request on the wire that a call becomes, its token, its progress, its cancellation, and
the approval of a plan.
Refuses to know: which tools there are (toolbox.py), how a result is worded (told.py), and what
long work goes on as once its request is answered (tasks/).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol

from kbproc.mcp import approval, pages, told
from kbproc.mcp.inside import Inside, Message
from kbproc.mcp.once import Once, Ticket
from kbproc.mcp.session import Request
from kbproc.mcp.toolbox import Mistake, Tool, Wanted, writes

_NO_PERSON = "A person must approve this plan, and this client cannot ask one."
_NOBODY = "Nobody answered whether to carry out this plan, so nothing was changed."
_IN_A_SHELL = "A person can run this in a shell, which shows the plan and asks:\n{command}"
DECLINED = "The user did not approve the plan; nothing was changed. Do not ask again unasked."
Again = Callable[[str], None]  # gets the hash of the plan that was approved


class Asker(Protocol):
    """Whoever a call is made for."""

    def begun(self) -> None:
        """The store has taken it on, and it may take long."""

    def progress(self, done: float, total: float | None, said: str) -> None: ...

    def decide(self, data: Message, again: Again) -> None:
        """A person must decide on the plan in this error of the wire."""

    def end(self, result: Message) -> None: ...


class Calls:
    """The calls of one client."""

    def __init__(
        self, inside: Inside, once: Once, delivered: Callable[[], bool], shell: approval.Shell
    ) -> None:
        """`delivered`: whether all that was sent is in the client's pipe."""
        self.shell = shell
        self._inside = inside
        self._once = once
        self._delivered = delivered
        self._lock = threading.Lock()
        self._sent: list[Ticket] = []  # answered, and perhaps not delivered yet

    def call(
        self,
        request: Request,
        tool: Tool,
        arguments: dict[str, Any],
        asker_of: Callable[[Caller], Asker] = lambda caller: caller,
    ) -> None:
        """`asker_of`: who it is made for instead of the caller."""
        try:
            wanted = pages.sized(tool.wanted(arguments))
        except Mistake as mistake:
            request.reply(told.mistake(str(mistake)))
            return
        ticket = self._ticket(wanted)
        if ticket is not None:
            token = self._once.token(ticket)
            wanted = wanted.adding(client_token=token)
        plan_hash, verdict = approval.given(request) or ("", None)
        if verdict == "approved":
            wanted = wanted.adding(confirm=plan_hash)
        caller = Caller(self, request, tool, wanted, ticket)
        caller.is_unanswered = verdict == "unanswered"
        if verdict == "refused":
            caller.end(told.mistake(DECLINED))
        else:
            request.on_cancel = self.ask(tool, wanted, asker_of(caller))

    def _ticket(self, wanted: Wanted) -> Ticket | None:
        """None for what changes nothing, or has a token."""
        if wanted.method not in writes() or wanted.params.get("dry_run"):
            return None
        if wanted.params.get("client_token") is not None:
            return None
        with self._lock:
            return self._once.take(wanted.method, wanted.params)

    def ask(self, tool: Tool, wanted: Wanted, asker: Asker) -> Callable[[], None]:
        """Returns how to cancel it."""
        call = _Call(self, tool, wanted, asker)
        call.ask(wanted)
        return call.cancel

    def send(
        self,
        wanted: Wanted,
        on_answer: Callable[[Message], None],
        on_event: Callable[[Message], None],
    ) -> int:
        return self._inside.ask(wanted.method, wanted.params, on_answer, on_event)

    def cancel(self, id: int) -> None:
        self._inside.cancel(id)

    def put_off(self, request: Request, result: dict[str, Any], ticket: Ticket | None) -> None:
        """The client will ask once more, when a person has decided."""
        if ticket is not None:
            with self._lock:
                self._once.give_back(ticket)
        request.reply(result)

    def end(self, request: Request, result: dict[str, Any], ticket: Ticket | None) -> None:
        request.reply(result)
        with self._lock:
            if ticket is not None and told.may_be_done(result):
                self._once.give_back(ticket)
            elif ticket is not None:
                self._sent.append(ticket)
        self.note_delivered()

    def note_delivered(self) -> None:
        """Notes which answers are in the client's pipe; one that was lost is asked for again."""
        with self._lock:
            sent, self._sent = self._sent, []
            if sent and not self._delivered():
                self._sent = sent
                return
            for ticket in sent:
                self._once.answered(ticket)


class Caller:
    """A client that waits for the result of its call."""

    def __init__(
        self, calls: Calls, request: Request, tool: Tool, wanted: Wanted, ticket: Ticket | None
    ) -> None:
        self.request = request
        self.tool = tool
        self.wanted = wanted
        self.is_unanswered = False  # the plan was put to the client before, and nobody answered
        self._calls = calls
        self._ticket = ticket

    @property
    def can_ask(self) -> bool:
        """True if a person may be there who has not been asked yet."""
        return approval.can_elicit(self.request) and not self.is_unanswered

    def begun(self) -> None:
        """It waits all the same."""

    def progress(self, done: float, total: float | None, said: str) -> None:
        self.request.progress(done, total, said)

    def decide(self, data: Message, again: Again) -> None:
        if not self.can_ask:
            self.end(self.unapproved(data))
        elif self.request.is_modern:
            self._calls.put_off(
                self.request, approval.required(data["plan"], self.request), self._ticket
            )
        else:
            self._elicit(data, again)

    def _elicit(self, data: Message, again: Again) -> None:
        cancel = self.request.on_cancel

        def decided(answer: dict[str, Any]) -> None:
            self.request.on_cancel = cancel
            if not self.request.session.is_open(self.request):
                return  # the client has cancelled it, and expects no answer
            self.follow(approval.verdict(answer, self.request), data, again, self.end)

        question = approval.question(data["plan"], self.request)
        withdraw = self.request.ask("elicitation/create", question, decided)

        def cancelled() -> None:
            withdraw()
            cancel()

        self.request.on_cancel = cancelled

    def follow(
        self,
        verdict: approval.Verdict,
        data: Message,
        again: Again,
        end: Callable[[dict[str, Any]], None],
    ) -> None:
        """Goes on with the plan in `data`, or ends without."""
        if verdict == "approved":
            again(data["plan"]["plan_hash"])
        elif verdict == "refused":
            end(told.mistake(DECLINED))
        else:
            self.is_unanswered = True
            end(self.unapproved(data))

    def unapproved(self, data: Message) -> dict[str, Any]:
        """The result for a plan that nobody at this client decides on."""
        command = self._calls.shell.command(self.wanted)
        why = _NOBODY if self.is_unanswered else _NO_PERSON
        return told.refused_plan(data, why, _IN_A_SHELL.format(command=command))

    def end(self, result: dict[str, Any]) -> None:
        self._calls.end(self.request, result, self._ticket)


class _Call:
    """One call on its way."""

    def __init__(self, calls: Calls, tool: Tool, wanted: Wanted, asker: Asker) -> None:
        self._calls = calls
        self._tool = tool
        self._wanted = wanted
        self._asker = asker
        self._id = 0
        self._base = self._last = 0.0
        self._stage = ""

    def ask(self, wanted: Wanted) -> None:
        self._id = self._calls.send(wanted, self._answer, self._event)

    def cancel(self) -> None:
        self._calls.cancel(self._id)

    def _again(self, confirm: str) -> None:
        self.ask(self._wanted.adding(confirm=confirm))

    def _event(self, event: Message) -> None:
        """Each stage counts from where the last one ended: progress only grows."""
        if event["type"] == "init":
            self._asker.begun()
        elif event["type"] == "progress":
            if event["stage"] != self._stage:
                self._stage, self._base = event["stage"], self._last
            total = event["total"]
            self._last = self._base + event["current"]
            said = f"{event['stage']} {event['message']}".strip()
            self._asker.progress(self._last, None if total is None else self._base + total, said)
        elif event["type"] == "answer" and "delta" in event:
            self._last += 1
            self._asker.progress(self._last, None, event["delta"])

    def _answer(self, response: Message) -> None:
        if "result" in response:
            self._asker.end(told.result(pages.fitted(response["result"], self._wanted)))
            return
        data = response["error"]["data"]
        if data["type"] == "input.confirmation_required" and "plan" in data:
            self._asker.decide(data, self._again)
        else:
            self._asker.end(told.error(data, self._tool, self._wanted))
