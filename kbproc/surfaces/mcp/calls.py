"""Carries out a call of a tool, from its arguments to its result.

A call becomes a request on the wire, with a token if it writes. Its progress goes to the client. A
plan is put to the person at the client, in both eras of the protocol; without a person there, a
command lets one decide in a shell.

Tokens make a write that is repeated after a crash happen once. A client that gets no answer because
the server was killed starts it anew and repeats its request, and nothing distinguishes the
repetition from a second request with the same content. So a token is made of the client (the parent
process and its start time), the content, and a number: the first one without an answer. A small
file holds the answered numbers, a line each, written once the answer is in the pipe. A request that
was in flight gets its own number again; the same request, once answered, gets the next number, and
is done again.

The log holds the token, which outlives a purge. So the content is hashed under a secret key, which
is in the runtime folder and in no backup.

Limits: a client that was itself started anew, or that starts the server through a program that
dies with it, is another client. A server that is killed in the microseconds between the answer and
its line takes the next request with the same content for a repetition. A token of the client's own
(`clientToken`) helps in both cases.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec
from msgspec import Struct

from kbproc.base.durable import boot, write_all, write_new
from kbproc.base.hashes import blake2b
from kbproc.base.processes import asked_of_ps, start_of
from kbproc.client.asker import Message
from kbproc.surfaces.mcp import results
from kbproc.surfaces.mcp.protocol import McpRequest
from kbproc.surfaces.mcp.toolbox import Mistake, Tool, WireRequest, lasting_methods, writes
from kbproc.surfaces.sharing.inside import Inside

_SIZE = 16  # bytes of a digest
_KEY_BYTES = 32
_TIME = "timeout_ms"  # excluded, because a repetition may allow more time

Ticket = tuple[str, int]  # digest of the content, number


def client_of(pid: int) -> str | None:
    """Returns a name for the process that no other process ever has; None if it is unknown."""
    try:
        return f"{pid}-{_start_time(pid)}-{boot()[:8]}"
    except (OSError, IndexError):
        return None


def _start_time(pid: int) -> str:
    """Returns when the process began. Raises OSError, IndexError."""
    if sys.platform == "linux":
        return start_of(pid)
    start = asked_of_ps(pid, "lstart")
    if not start:
        raise OSError(f"there is no process {pid}")
    return blake2b(start.encode(), digest_size=4).hexdigest()


class Once:
    """The tokens of one client's writes. Not safe for threads: callers hold a lock."""

    def __init__(self, folder: Path, client: str | None, where: Callable[[], str]) -> None:
        """`folder`: of the small files; `where` returns the store and the actor, which are known
        once the client has introduced itself.

        For an unknown client, or a folder that can't be written, each request gets its own token,
        so that a repetition after a crash happens again.
        """
        self._prefix = f"mcp-{os.urandom(8).hex()}"
        self._folder = folder
        self._client = client
        self._name_where = where
        self._where = self._key = b""
        self._answered: dict[str, set[int]] = {}
        self._open: set[Ticket] = set()
        self._fd = -1

    def _settle(self) -> None:
        """Opens and reads the client's file, at the first write."""
        self._where = self._name_where().encode()
        self._key = self._keyed(os.urandom(_KEY_BYTES))
        if self._client is None:
            return
        with contextlib.suppress(OSError):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _remove_ended_clients(self._folder)
            self._key = self._keyed(_secret(self._folder))
            name = blake2b(self._where, digest_size=8).hexdigest()
            path = self._folder / f"{self._client}-{name}"
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            self._fd = os.open(path, flags, 0o600)
            self._read(path.read_bytes())
            self._prefix = f"mcp-{self._client}-{name}"

    def _keyed(self, secret: bytes) -> bytes:
        """Returns the key for this store and actor."""
        return blake2b(self._where, key=secret).digest()

    def _read(self, data: bytes) -> None:
        for line in data.split(b"\n")[:-1]:
            with contextlib.suppress(ValueError):
                digest, number = line.decode("ascii").split(" ")
                self._answered.setdefault(digest, set()).add(int(number))

    def take(self, method: str, params: dict[str, Any]) -> Ticket:
        """Returns the first ticket of this content that is neither answered nor in flight."""
        if not self._where:
            self._settle()
        content = {name: value for name, value in params.items() if name != _TIME}
        data = msgspec.json.encode([method, content], order="deterministic")
        digest = blake2b(data, digest_size=_SIZE, key=self._key).hexdigest()
        answered = self._answered.get(digest, set())
        number = 0
        while number in answered or (digest, number) in self._open:
            number += 1
        self._open.add((digest, number))
        return digest, number

    def token(self, ticket: Ticket) -> str:
        return f"{self._prefix}-{ticket[0]}-{ticket[1]}"

    def give_back(self, ticket: Ticket) -> None:
        """Frees a ticket without an answer, so that the same content gets it again."""
        self._open.discard(ticket)

    def answered(self, ticket: Ticket) -> None:
        """Marks a ticket as answered, once the answer is in the pipe."""
        self._open.discard(ticket)
        self._answered.setdefault(ticket[0], set()).add(ticket[1])
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                write_all(self._fd, f"{ticket[0]} {ticket[1]}\n".encode())


def _secret(folder: Path) -> bytes:
    """Returns the secret key of a folder, and makes it if it is missing. Raises OSError."""
    path = folder / "key"
    if not path.exists():
        new = folder / f"key-{os.urandom(8).hex()}"
        write_new(str(new), os.urandom(_KEY_BYTES))
        try:
            with contextlib.suppress(FileExistsError):  # because another process may be faster
                path.hardlink_to(new)
        finally:
            new.unlink()
    key = path.read_bytes()
    if len(key) != _KEY_BYTES:
        raise OSError(errno.EINVAL, "the key is damaged")
    return key


def _remove_ended_clients(folder: Path) -> None:
    """Removes the files of clients that have ended."""
    for path in folder.iterdir():
        pid = path.name.partition("-")[0]
        if pid.isdigit() and not path.name.startswith(f"{client_of(int(pid))}-"):
            path.unlink(missing_ok=True)


APPROVAL_KEY = "approval"
_MOST_SHOWN = 20
# An empty form preselects nothing: accept is yes, decline is no.
_EMPTY: dict[str, Any] = {"type": "object", "properties": {}}
_ASKS = "Accept to do exactly this; decline to leave everything as it is."
# Codex gets a choice that starts at no, because it accepts an empty form without a person where its
# user has switched approvals off, and because it preselects true in a boolean, so that Enter
# destroys.
_ACCEPT_BY_THEMSELVES = frozenset({"codex-mcp-client"})
_FIELD = "carry_out"
_YES = "yes"
_CHOICE: dict[str, Any] = {
    "type": "object",
    "properties": {
        _FIELD: {"type": "string", "title": "Carry out this plan?", "enum": ["no", _YES]}
    },
    "required": [_FIELD],
}
_ASKS_TO_CHOOSE = (
    "Choose yes to do exactly this; choose no, or decline, to leave everything as it is."
)
_NOT_FOR_SHELL = frozenset({"client_token", "confirm", "dry_run", "timeout_ms"})

Verdict = Literal["approved", "refused", "unanswered"]


class UserShell(Struct, frozen=True, kw_only=True):
    """A shell in which a person can decide. `agent`: the agent of requests that name none."""

    store: str
    agent: str | None = None

    def command(self, request: WireRequest) -> str:
        """Returns the whole command line for a request, quoted."""
        from kbproc.methods.all import registry
        from kbproc.methods.calls.flags import argv_of

        method = registry().methods[request.method]
        params = {k: v for k, v in request.params.items() if k not in _NOT_FOR_SHELL}
        if self.agent is not None and "agent" in method.params.__struct_fields__:
            params.setdefault("agent", self.agent)
        return shlex.join([*argv_of(method, params), "--store", self.store])


def can_elicit(request: McpRequest) -> bool:
    """Returns true if the client can show a form; a bare {} has always meant forms."""
    declared = request.capabilities.get("elicitation")
    return isinstance(declared, dict) and (not declared or "form" in declared)


def _needs_choice(request: McpRequest) -> bool:
    return request.client in _ACCEPT_BY_THEMSELVES


def approval_question(plan: dict[str, Any], request: McpRequest) -> dict[str, Any]:
    """Returns the params of elicitation/create for the client of the request."""
    schema, asks = (_CHOICE, _ASKS_TO_CHOOSE) if _needs_choice(request) else (_EMPTY, _ASKS)
    risk = plan["risk"]
    lines = [f"{plan['action']} (risk: {risk['level']}) would:"]
    lines += [f"- {change}" for change in plan["changes"][:_MOST_SHOWN]]
    if (more := len(plan["changes"]) - _MOST_SHOWN) > 0:
        lines.append(f"- and {more} more")
    return {"message": "\n".join([*lines, asks]), "requestedSchema": schema}


def approval_required(plan: dict[str, Any], request: McpRequest) -> dict[str, Any]:
    """Returns the result that asks for input, since 2026-07-28."""
    params = {"mode": "form", **approval_question(plan, request)}
    return {
        "resultType": "input_required",
        "inputRequests": {APPROVAL_KEY: {"method": "elicitation/create", "params": params}},
        "requestState": plan["plan_hash"],
    }


def verdict_in(request: McpRequest) -> tuple[str, Verdict] | None:
    """Returns the hash of a plan and the verdict on it; None for a request without them."""
    state = request.params.get("requestState")
    responses = request.params.get("inputResponses")
    if not request.is_modern or not isinstance(state, str) or not isinstance(responses, dict):
        return None
    answer = responses.get(APPROVAL_KEY)
    return None if not isinstance(answer, dict) else (state, verdict_of(answer, request))


def verdict_of(answer: dict[str, Any], request: McpRequest) -> Verdict:
    """Returns a person's verdict from the form of `approval_question`.

    Clients that run without a person send cancel, an error, or an empty form.
    """
    match answer:
        case {"action": "decline"}:
            return "refused"
        case {"action": "accept"} if not _needs_choice(request):
            return "approved"
        case {"action": "accept", "content": dict(content)} if _FIELD in content:
            return "approved" if content[_FIELD] == _YES else "refused"
    return "unanswered"


_NO_PERSON = "A person must approve this plan, and this client cannot ask one."
_NO_DECISION = "Nobody answered whether to carry out this plan, so nothing was changed."
_IN_A_SHELL = "A person can run this in a shell, which shows the plan and asks:\n{command}"
DECLINED = "The user did not approve the plan; nothing was changed. Do not ask again unasked."
Again = Callable[[str], None]  # gets the hash of the plan that was approved


class Recipient(Protocol):
    """A recipient of a call's progress and result."""

    def on_begin(self) -> None:
        """Notes that the store has begun the call, which may take long."""

    def progress(self, done: float, total: float | None, message: str) -> None: ...

    def decide(self, data: Message, again: Again) -> None:
        """Has a person decide on the plan in this error of the wire."""

    def end(self, result: Message) -> None: ...


class Calls:
    """The calls of one client."""

    def __init__(
        self, inside: Inside, once: Once, delivered: Callable[[], bool], shell: UserShell
    ) -> None:
        """`delivered` returns true if all sent lines are in the client's pipe."""
        self.shell = shell
        self._inside = inside
        self._once = once
        self._delivered = delivered
        self._lock = threading.Lock()
        self._sent: list[Ticket] = []  # tickets of answers that may not be in the pipe yet

    def call(
        self,
        request: McpRequest,
        tool: Tool,
        arguments: dict[str, Any],
        recipient_of: Callable[[ToolCaller], Recipient] = lambda caller: caller,
    ) -> None:
        """Calls a tool. `recipient_of`: caller → the recipient of the result."""
        try:
            wire_request = results.sized(tool.to_request(arguments))
        except Mistake as mistake:
            request.reply(results.mistake(str(mistake)))
            return
        ticket = self._ticket(wire_request)
        if ticket is not None:
            token = self._once.token(ticket)
            wire_request = wire_request.adding(client_token=token)
        plan_hash, verdict = verdict_in(request) or ("", None)
        if verdict == "approved":
            wire_request = wire_request.adding(confirm=plan_hash)
        caller = ToolCaller(self, request, tool, wire_request, ticket)
        caller.is_unanswered = verdict == "unanswered"
        if verdict == "refused":
            caller.end(results.mistake(DECLINED))
        else:
            call = _ToolCall(self, tool, wire_request, recipient_of(caller))

            def cancelled() -> None:
                caller.give_up()
                call.cancel()

            # Before the call, because a plan that comes back at once puts a question in its place.
            request.on_cancel = cancelled
            call.ask(wire_request)

    def _ticket(self, request: WireRequest) -> Ticket | None:
        """Returns a ticket for a write; None for a write with a token and for other requests."""
        if request.method not in writes() or request.params.get("dry_run"):
            return None
        if request.params.get("client_token") is not None:
            return None
        with self._lock:
            return self._once.take(request.method, request.params)

    def ask(self, tool: Tool, request: WireRequest, recipient: Recipient) -> Callable[[], None]:
        """Sends the request; returns a function that cancels it."""
        call = _ToolCall(self, tool, request, recipient)
        call.ask(request)
        return call.cancel

    def send(
        self,
        request: WireRequest,
        on_answer: Callable[[Message], None],
        on_event: Callable[[Message], None],
    ) -> int:
        return self._inside.ask(request.method, request.params, on_answer, on_event).id

    def cancel(self, id: int) -> None:
        self._inside.cancel(id)

    def put_off(self, caller: ToolCaller, result: dict[str, Any]) -> None:
        """Replies with a question; the client repeats its request once a person has decided."""

        def give_back() -> None:
            if (ticket := caller.take_ticket()) is not None:
                with self._lock:
                    self._once.give_back(ticket)

        if not caller.request.try_reply(result, before=give_back):
            caller.give_up()

    def give_up(self, method: str, ticket: Ticket) -> None:
        """Frees the ticket of a cancelled request, so that its repetition is the same write.

        A stopped answer keeps its ticket, so that its repetition generates a new answer.
        """
        with self._lock:
            if method in lasting_methods():
                self._once.answered(ticket)
            else:
                self._once.give_back(ticket)

    def end(self, caller: ToolCaller, result: dict[str, Any]) -> None:
        """Replies, unless the client expects no result any more.

        A ticket is given back before the reply, because the client may repeat its request at once.
        It counts as answered only after the reply, because the client may never get the reply.
        """
        answered: list[Ticket] = []

        def give_back() -> None:
            ticket = caller.take_ticket()
            if ticket is not None and results.may_be_done(result, caller.wire_request.method):
                with self._lock:
                    self._once.give_back(ticket)
            elif ticket is not None:
                answered.append(ticket)

        if caller.request.try_reply(result, before=give_back):
            with self._lock:
                self._sent += answered
            self.note_delivered()
        else:
            caller.give_up()

    def note_delivered(self) -> None:
        """Marks tickets as answered once their answers are in the client's pipe."""
        with self._lock:
            sent, self._sent = self._sent, []
            if sent and not self._delivered():
                self._sent = sent
                return
            for ticket in sent:
                self._once.answered(ticket)


class ToolCaller:
    """A client that waits for the result of its call."""

    def __init__(
        self,
        calls: Calls,
        request: McpRequest,
        tool: Tool,
        wire_request: WireRequest,
        ticket: Ticket | None,
    ) -> None:
        self.request = request
        self.tool = tool
        self.wire_request = wire_request
        self.is_unanswered = False  # true once the client has returned no decision on the plan
        self._calls = calls
        self._ticket = ticket
        self._lock = threading.Lock()

    @property
    def can_ask(self) -> bool:
        """Returns true if the client can ask a person, and has not done so yet."""
        return can_elicit(self.request) and not self.is_unanswered

    def on_begin(self) -> None:
        """Does nothing, because the caller waits in any case."""

    def progress(self, done: float, total: float | None, message: str) -> None:
        self.request.progress(done, total, message)

    def decide(self, data: Message, again: Again) -> None:
        if not self.can_ask:
            self.end(self.unapproved(data))
        elif self.request.is_modern:
            question = approval_required(data["plan"], self.request)
            self._calls.put_off(self, question)
        else:
            self._elicit(data, again)

    def _elicit(self, data: Message, again: Again) -> None:
        cancel = self.request.on_cancel

        def decided(answer: dict[str, Any]) -> None:
            self.request.on_cancel = cancel
            if not self.request.session.is_open(self.request):
                return  # because the client has cancelled the request
            self.follow(verdict_of(answer, self.request), data, again, self.end)

        question = approval_question(data["plan"], self.request)
        withdraw = self.request.ask("elicitation/create", question, decided)

        def cancelled() -> None:
            withdraw()
            cancel()

        self.request.on_cancel = cancelled

    def follow(
        self,
        verdict: Verdict,
        data: Message,
        again: Again,
        end: Callable[[dict[str, Any]], None],
    ) -> None:
        """Carries out the plan in `data` if it is approved, else ends the call."""
        if verdict == "approved":
            again(data["plan"]["plan_hash"])
        elif verdict == "refused":
            end(results.mistake(DECLINED))
        else:
            self.is_unanswered = True
            end(self.unapproved(data))

    def unapproved(self, data: Message) -> dict[str, Any]:
        """Returns the result for a plan that no person at this client decides on."""
        command = self._calls.shell.command(self.wire_request)
        reason = _NO_DECISION if self.is_unanswered else _NO_PERSON
        return results.refused_plan(data, reason, _IN_A_SHELL.format(command=command))

    def end(self, result: dict[str, Any]) -> None:
        self._calls.end(self, result)

    def give_up(self) -> None:
        """Frees the ticket of a cancelled request, unless the request has an answer."""
        if (ticket := self.take_ticket()) is not None:
            self._calls.give_up(self.wire_request.method, ticket)

    def take_ticket(self) -> Ticket | None:
        """Returns the ticket on the first call only, because another call may hold it afterwards.

        Call it once the request is settled. Before that, a client that cancels and repeats its
        request would find the ticket in use.
        """
        with self._lock:
            ticket, self._ticket = self._ticket, None
        return ticket


class _ToolCall:
    """A call in flight."""

    def __init__(
        self, calls: Calls, tool: Tool, request: WireRequest, recipient: Recipient
    ) -> None:
        self._calls = calls
        self._tool = tool
        self._request = request
        self._recipient = recipient
        self._id = 0
        self._base = self._last = 0.0
        self._stage = ""

    def ask(self, request: WireRequest) -> None:
        self._id = self._calls.send(request, self._answer, self._event)

    def cancel(self) -> None:
        self._calls.cancel(self._id)

    def _again(self, confirm: str) -> None:
        self.ask(self._request.adding(confirm=confirm))

    def _event(self, event: Message) -> None:
        """Passes an event on; a stage counts on from the last one, so that progress only grows."""
        if event["type"] == "init":
            self._recipient.on_begin()
        elif event["type"] == "progress":
            if event["stage"] != self._stage:
                self._stage, self._base = event["stage"], self._last
            total = event["total"]
            self._last = self._base + event["current"]
            message = f"{event['stage']} {event['message']}".strip()
            total = None if total is None else self._base + total
            self._recipient.progress(self._last, total, message)
        elif event["type"] == "answer" and "delta" in event:
            self._last += 1
            self._recipient.progress(self._last, None, event["delta"])

    def _answer(self, response: Message) -> None:
        if "result" in response:
            self._recipient.end(results.result(results.fitted(response["result"], self._request)))
            return
        data = response["error"]["data"]
        if data["type"] == "input.confirmation_required" and "plan" in data:
            self._recipient.decide(data, self._again)
        else:
            self._recipient.end(results.error(data, self._tool, self._request))
