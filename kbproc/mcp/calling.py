"""One call of a tool, from its arguments to its result.

Owns: the request on the wire that a call becomes, its token, its progress, its cancellation, and
the approval of a plan.
Refuses to know: which tools there are (toolbox.py), and how a result is worded (told.py).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from kbproc.mcp import approval, told
from kbproc.mcp.inside import Inside, Message
from kbproc.mcp.once import Once, Ticket
from kbproc.mcp.session import Request
from kbproc.mcp.toolbox import Mistake, Tool, Wanted, writes

_NO_PERSON = (
    "A person must approve this plan, and this client cannot ask one. The person can run the "
    "command in a shell, which shows the plan and asks: kbproc {command}."
)
_DECLINED = "The user did not approve the plan; nothing was changed. Do not ask again unasked."


class Calls:
    """The calls of one client."""

    def __init__(self, inside: Inside, once: Once, delivered: Callable[[], bool]) -> None:
        """`delivered`: whether all that was sent is in the client's pipe."""
        self._inside = inside
        self._once = once
        self._delivered = delivered
        self._lock = threading.Lock()
        self._sent: list[Ticket] = []  # answered, and perhaps not delivered yet

    def call(self, request: Request, tool: Tool, arguments: dict[str, Any]) -> None:
        try:
            wanted = tool.wanted(arguments)
        except Mistake as mistake:
            request.reply(told.mistake(str(mistake)))
            return
        ticket = self._ticket(wanted)
        if ticket is not None:
            token = self._once.token(ticket)
            wanted = Wanted(wanted.method, {**wanted.params, "client_token": token})
        approved = approval.given(request)
        if approved is None:
            _Call(self, request, tool, wanted, ticket).ask()
        elif approved[1]:
            _Call(self, request, tool, wanted, ticket).ask(confirm=approved[0])
        else:
            self.end(request, told.mistake(_DECLINED), ticket)

    def _ticket(self, wanted: Wanted) -> Ticket | None:
        """None for what changes nothing, or has a token."""
        if wanted.method not in writes() or wanted.params.get("dry_run"):
            return None
        if wanted.params.get("client_token") is not None:
            return None
        with self._lock:
            return self._once.take(wanted.method, wanted.params)

    def ask(
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
            if ticket is not None:
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


class _Call:
    """One call on its way."""

    def __init__(
        self, calls: Calls, request: Request, tool: Tool, wanted: Wanted, ticket: Ticket | None
    ) -> None:
        self._calls = calls
        self._request = request
        self._tool = tool
        self._wanted = wanted
        self._ticket = ticket
        self._base = self._last = 0.0
        self._stage = ""

    def ask(self, confirm: str | None = None) -> None:
        wanted = self._wanted
        if confirm is not None:
            wanted = Wanted(wanted.method, {**wanted.params, "confirm": confirm})
        id = self._calls.ask(wanted, self._answer, self._event)
        self._request.on_cancel = lambda: self._calls.cancel(id)

    def _event(self, event: Message) -> None:
        """Each stage counts from where the last one ended: progress only grows."""
        if event["type"] == "progress":
            if event["stage"] != self._stage:
                self._stage, self._base = event["stage"], self._last
            total = event["total"]
            self._last = self._base + event["current"]
            said = f"{event['stage']} {event['message']}".strip()
            self._request.progress(self._last, None if total is None else self._base + total, said)
        elif event["type"] == "answer" and "delta" in event:
            self._last += 1
            self._request.progress(self._last, None, event["delta"])

    def _answer(self, response: Message) -> None:
        if "result" in response:
            self._calls.end(self._request, told.result(response["result"]), self._ticket)
            return
        data = response["error"]["data"]
        if data["type"] != "input.confirmation_required" or "plan" not in data:
            self._calls.end(self._request, told.error(data, self._tool), self._ticket)
        elif not approval.can_elicit(self._request):
            command = self._wanted.method.replace(".", " ")
            why = _NO_PERSON.format(command=command)
            self._calls.end(self._request, told.refused_plan(data, why, self._tool), self._ticket)
        elif self._request.is_modern:
            self._calls.put_off(self._request, approval.required(data["plan"]), self._ticket)
        else:
            self._elicit(data["plan"])

    def _elicit(self, plan: dict[str, Any]) -> None:
        def decided(answer: dict[str, Any]) -> None:
            if approval.is_approved(answer):
                self.ask(confirm=plan["plan_hash"])
            else:
                self._calls.end(self._request, told.mistake(_DECLINED), self._ticket)

        self._request.ask("elicitation/create", approval.question(plan), decided)
