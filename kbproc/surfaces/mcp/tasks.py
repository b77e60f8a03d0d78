"""Turns calls that take long into tasks, which clients ask about by their ids.

A task's id holds the whole request with its token. So no state is kept for a task beside the log's
record of its write: the request, sent again, has its earlier outcome, or continues. A task outlives
the server, and no file beside the store keeps texts that a purge erases. The log may not know
cancelled tasks; a small file in the runtime folder lists them.

Extension: https://modelcontextprotocol.io/extensions/tasks, io.modelcontextprotocol/tasks.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import functools
import os
import threading
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from kbproc.base.durable import write_all
from kbproc.base.hashes import blake2b
from kbproc.base.host import Host
from kbproc.base.times import rfc3339
from kbproc.base.values import decoder
from kbproc.client.asker import Message
from kbproc.surfaces.mcp import calls, protocol, results
from kbproc.surfaces.mcp.calls import Again, Calls, Recipient, ToolCaller
from kbproc.surfaces.mcp.protocol import McpRequest, Refusal
from kbproc.surfaces.mcp.toolbox import Tool, Toolbox, WireRequest, long_methods

_SALT = 16  # bytes of a digest
_MOST_BYTES = 1 << 20


class Handle(Struct, frozen=True, array_like=True):
    """The content of a task's id.

    `began_ms`: since the epoch; `salt`: random bytes in hex; `params` hold the token.
    """

    tool: str
    method: str
    params: dict[str, Any]
    began_ms: int
    salt: str


_decode = decoder(Handle).decode


class Handles:
    """The ids of one client's tasks.

    `where` returns the store and the actor, which are known once the client has introduced itself.
    """

    def __init__(self, folder: Path, where: Callable[[], str]) -> None:
        """`folder`: of the small file; if it can't be written, cancelled tasks may go on."""
        self._folder = folder
        self._where = where

    @functools.cached_property
    def _key(self) -> bytes:
        return blake2b(self._where().encode()).digest()

    @property
    def _cancelled(self) -> Path:
        return self._folder / f"cancelled-{self._key[:8].hex()}"

    def id_of(self, handle: Handle) -> str:
        packed = zlib.compress(msgspec.json.encode(handle), 9)
        return _text(self._digest(packed) + packed)

    def read(self, id: str) -> Handle | None:
        """Returns the content of an id; None for an id of another client or no id."""
        try:
            data = base64.b64decode(id + "=" * (-len(id) % 4), b"-_", validate=True)
            packed = data[_SALT:]
            # Another spelling of the same bytes is no id, because the list of cancelled tasks
            # knows one spelling only.
            if self._digest(packed) != data[:_SALT] or _text(data) != id:
                return None
            return _decode(zlib.decompressobj().decompress(packed, _MOST_BYTES))
        except (binascii.Error, ValueError, zlib.error, msgspec.DecodeError):
            return None

    def _digest(self, packed: bytes) -> bytes:
        return blake2b(packed, digest_size=_SALT, key=self._key).digest()

    def cancel(self, id: str) -> None:
        """Records that a task is cancelled, so that a question about it does not continue it."""
        with contextlib.suppress(OSError):
            self._cancelled.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            fd = os.open(self._cancelled, flags, 0o600)
            try:
                write_all(fd, self._line(id))
            finally:
                os.close(fd)

    def is_cancelled(self, id: str) -> bool:
        try:
            return self._line(id) in self._cancelled.read_bytes().splitlines(keepends=True)
        except OSError:
            return False

    def _line(self, id: str) -> bytes:
        return blake2b(id.encode(), digest_size=_SALT).hexdigest().encode() + b"\n"


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


GRACE_SECONDS = 0.5  # a call that ends sooner needs no task
_POLL_MS = 1000
_PROGRESS_EVERY_MS = 1000.0
_OVER = frozenset({"completed", "cancelled"})
OnState = Callable[[Message], None]


class Task:
    """A task that receives a call's result in place of a caller. Any thread may use it.

    `is_settled`: the task has ended, waits for a person, or takes longer, so that waiting requests
    get an answer. `lost`: why the store could not report on the task.
    """

    def __init__(
        self, id: str, began_ms: int, caller: ToolCaller, host: Host, mark: Callable[[str], None]
    ) -> None:
        """`mark`: records that the task of this id is cancelled."""
        self.id = id
        self.caller = caller
        self.lost: str | None = None
        self.cancel: Callable[[], None] = lambda: None
        self._mark = mark
        self.is_settled = False
        self._host = host
        self._waiting: list[Callable[[], None]] = []
        self._watchers: dict[Any, OnState] = {}
        self._notified_ms = 0.0
        self._grace = threading.Timer(GRACE_SECONDS, self.settle)
        self._grace.daemon = True
        self._question: tuple[Message, Again] | None = None  # a plan's error, and its continuation
        self._lock = threading.RLock()
        began = rfc3339(began_ms)
        self._state: Message = {"taskId": id, "status": "working", "createdAt": began}
        self._state |= {"lastUpdatedAt": began, "ttlMs": None, "pollIntervalMs": _POLL_MS}

    @property
    def state(self) -> Message:
        with self._lock:
            return dict(self._state)

    @property
    def is_over(self) -> bool:
        return self._state["status"] in _OVER

    def when_settled(self, then: Callable[[], None]) -> None:
        with self._lock:
            if not self.is_settled:
                self._waiting.append(then)
                return
        then()

    def watch(self, stream: Any, on_state: OnState) -> None:
        """Calls `on_state` with the state, now and after each change."""
        with self._lock:
            self._watchers[stream] = on_state
            on_state(self.state)

    def unwatch(self, stream: Any) -> None:
        with self._lock:
            self._watchers.pop(stream, None)

    def settle(self) -> None:
        """Lets all waiting requests get their answers."""
        with self._lock:
            self.is_settled = True
            waiting, self._waiting = self._waiting, []
        self._grace.cancel()
        for then in waiting:
            then()

    def _change(self, *, quietly: bool = False, **members: Any) -> None:
        """Changes members of the state; None removes a member. `quietly`: without watchers."""
        with self._lock:
            if self.is_over:
                return
            state = {**self._state, **members, "lastUpdatedAt": self._host.now()}
            self._state = {k: v for k, v in state.items() if v is not None or k == "ttlMs"}
            for on_state in () if quietly else self._watchers.values():
                on_state(self.state)

    # ------------------------------------------------------------- the call's recipient

    def on_begin(self) -> None:
        with self._lock:
            if self.is_settled or self._grace.is_alive():
                return
            if GRACE_SECONDS > 0:
                self._grace.start()
                return
        self.settle()

    def progress(self, done: float, total: float | None, message: str) -> None:
        now = self._host.monotonic_ms()
        is_due = now - self._notified_ms >= _PROGRESS_EVERY_MS
        self._notified_ms = now if is_due else self._notified_ms
        self._change(statusMessage=message, quietly=not is_due)

    def decide(self, data: Message, again: Again) -> None:
        caller = self.caller
        if not caller.can_ask:
            self.end(caller.unapproved(data))
            return
        required = calls.approval_required(data["plan"], caller.request)
        self._question = data, again
        self._change(status="input_required", inputRequests=required["inputRequests"])
        self.settle()

    def answer(self, responses: dict[str, Any]) -> None:
        """Takes a person's decision; ignores one without a question."""
        with self._lock:
            response = responses.get(calls.APPROVAL_KEY)
            if self._question is None or not isinstance(response, dict):
                return
            (data, again), self._question = self._question, None

        def go_on(plan_hash: str) -> None:
            self._change(status="working", inputRequests=None)
            again(plan_hash)

        self.caller.follow(calls.verdict_of(response, self.caller.request), data, go_on, self.end)

    def end(self, result: Message) -> None:
        error = result.get("_meta", {}).get(results.ERROR, {})
        if error.get("type") == "operation.cancelled":
            self._mark(self.id)
            self.be_cancelled()
        else:
            self._change(status="completed", statusMessage=None, inputRequests=None, result=result)
        self.settle()

    def give_up(self) -> None:
        """Cancels the task at the client's request."""
        with self._lock:
            waits, self._question = self._question is not None, None
        if waits:
            self._mark(self.id)
            self.be_cancelled()
        elif not self.is_over:
            self.cancel()

    def be_cancelled(self) -> None:
        self._change(status="cancelled", statusMessage=None, inputRequests=None)


class CalledTask(Task):
    """A task of a call whose caller still waits; a call that ends soon returns no task."""

    def progress(self, done: float, total: float | None, message: str) -> None:
        self.caller.progress(done, total, message)  # sends nothing once the caller has an answer
        super().progress(done, total, message)

    def decide(self, data: Message, again: Again) -> None:
        """Lets the caller ask the person while it waits; later the task asks."""
        with self._lock:
            is_settled = self.is_settled
            if not is_settled:
                self._waiting = []
                self._grace.cancel()
        if is_settled:
            super().decide(data, again)
        else:
            self.caller.decide(data, again)


class RestoredTask(Task):
    """A task that this process does not know, so that it sends the request again."""

    def end(self, result: Message) -> None:
        error = result.get("_meta", {}).get(results.ERROR, {})
        if not self.is_settled and str(error.get("type")).startswith("store."):
            self.lost = result["content"][0]["text"]
            self.settle()
        else:
            super().end(result)


_MOST = 128  # ended tasks to keep in memory; the log has all tasks
Scopes = frozenset[str]


def can(request: McpRequest) -> bool:
    """Returns true if the client knows tasks."""
    extensions = request.capabilities.get("extensions")
    return request.is_modern and isinstance(extensions, dict) and protocol.TASKS in extensions


def require(request: McpRequest) -> None:
    """Raises Refusal for a client that does not declare the extension for tasks."""
    if not can(request):
        missing: dict[str, Any] = {"requiredCapabilities": {"extensions": {protocol.TASKS: {}}}}
        text = f"The client's capabilities lack the extension {protocol.TASKS}."
        raise Refusal(protocol.MISSING_CAPABILITY, text, missing)


class Tasks:
    """The tasks of one client."""

    def __init__(self, calls: Calls, toolbox: Toolbox, handles: Handles, host: Host) -> None:
        self._calls = calls
        self._toolbox = toolbox
        self._handles = handles
        self._host = host
        self._tasks: dict[str, Task] = {}
        self._lock = threading.Lock()

    def call(self, request: McpRequest, tool: Tool, arguments: dict[str, Any]) -> None:
        """Calls a tool; a call that takes long is answered with a task."""
        self._calls.call(request, tool, arguments, self._recipient_of)

    def _recipient_of(self, caller: ToolCaller) -> Recipient:
        if not can(caller.request) or caller.wire_request.method not in long_methods():
            return caller
        name, request = caller.tool.tool["name"], caller.wire_request
        began = self._host.now_ms()
        handle = Handle(name, request.method, request.params, began, self._host.salt())
        id = self._handles.id_of(handle)
        task = CalledTask(id, began, caller, self._host, lambda id: self._mark(task))

        def cancel() -> None:  # `on_cancel` is set after this task exists
            caller.request.on_cancel()

        task.cancel = cancel
        task.when_settled(lambda: self._answer(task))
        return task

    def _answer(self, task: Task) -> None:
        """Answers the caller with the result, or with the task if there is no result yet."""
        state = task.state
        if "result" in state or task.is_over:
            task.caller.end(state.get("result", {}))
            return
        with self._lock:
            self._keep(task)
        task.caller.end({"resultType": "task", **state})

    def _mark(self, task: Task) -> None:
        """Records a cancelled task, unless no client has its id."""
        if task.is_settled:
            self._handles.cancel(task.id)

    def _keep(self, task: Task) -> None:
        over = [id for id, kept_task in self._tasks.items() if kept_task.is_over]
        for id in over[: max(0, len(over) - _MOST)]:
            del self._tasks[id]
        self._tasks[task.id] = task

    # --------------------------------------------------------------------------- asking after

    def get(self, request: McpRequest, scopes: Scopes) -> None:
        self._when_settled(request, scopes, lambda task: request.reply(task.state))

    def update(self, request: McpRequest, scopes: Scopes) -> None:
        responses = request.params.get("inputResponses")
        if not isinstance(responses, dict):
            raise Refusal(protocol.INVALID_PARAMS, "params.inputResponses must be an object.")

        def answer(task: Task) -> None:
            request.reply({})
            task.answer(responses)

        self._when_settled(request, scopes, answer)

    def cancel(self, request: McpRequest, scopes: Scopes) -> None:
        def give_up(task: Task) -> None:
            request.reply({})
            task.give_up()

        self._when_settled(request, scopes, give_up)

    def find_all(self, request: McpRequest, ids: Any, scopes: Scopes) -> list[Task]:
        """Returns the tasks of these ids that exist. Raises Refusal."""
        require(request)
        if not isinstance(ids, list):
            raise Refusal(protocol.INVALID_PARAMS, "taskIds must be an array.")
        tasks = []
        for id in ids[:_MOST]:
            with contextlib.suppress(Refusal):
                tasks.append(self._find(request, id, scopes))
        return tasks

    def _when_settled(
        self, request: McpRequest, scopes: Scopes, then: Callable[[Task], None]
    ) -> None:
        """Calls `then` with the request's task once it is settled. Raises Refusal."""
        require(request)
        task = self._find(request, request.params.get("taskId"), scopes)

        def settled() -> None:
            if task.lost is None:
                then(task)
                return
            with self._lock:
                self._tasks.pop(task.id, None)
            request.refuse(Refusal(protocol.INTERNAL_ERROR, task.lost))

        task.when_settled(settled)

    def _find(self, request: McpRequest, id: Any, scopes: Scopes) -> Task:
        """Returns the task; one whose server died goes on. Raises Refusal."""
        if not isinstance(id, str):
            raise Refusal(protocol.INVALID_PARAMS, "A task's id must be a string.")
        with self._lock:
            if (task := self._tasks.get(id)) is not None:
                return task
            handle = self._handles.read(id)
            tool = None if handle is None else self._toolbox.find(handle.tool, scopes)
            if handle is None or tool is None:
                raise Refusal(protocol.INVALID_PARAMS, "There is no such task.")
            wire_request = WireRequest(handle.method, handle.params)
            caller = ToolCaller(self._calls, request, tool, wire_request, None)
            task = RestoredTask(id, handle.began_ms, caller, self._host, self._handles.cancel)
            self._keep(task)
        if self._handles.is_cancelled(id):
            task.be_cancelled()
            task.settle()
        else:
            task.cancel = self._calls.ask(tool, wire_request, task)
        return task
