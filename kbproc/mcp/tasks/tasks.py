"""Tasks: a call that takes long is answered with a handle, and asked after by it.

Owns: which calls become tasks, finding a task by its id, and going on with one whose server died.
Refuses to know: how a call is made, what an id holds, and how a task stands.

Extension: https://modelcontextprotocol.io/extensions/tasks, io.modelcontextprotocol/tasks.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

from kbproc.base.host import Host
from kbproc.mcp import protocol
from kbproc.mcp.calling import Asker, Caller, Calls
from kbproc.mcp.protocol import Refusal
from kbproc.mcp.session import Request
from kbproc.mcp.tasks.handle import Handle, Handles
from kbproc.mcp.tasks.task import Called, Found, Task
from kbproc.mcp.toolbox import Tool, Toolbox, Wanted, long_ones

_MOST = 128  # that are kept in memory once they have ended: the log has them all
Scopes = frozenset[str]


def can(request: Request) -> bool:
    """Whether the client knows tasks."""
    extensions = request.capabilities.get("extensions")
    return request.is_modern and isinstance(extensions, dict) and protocol.TASKS in extensions


def require(request: Request) -> None:
    """Raises Refusal for a client that does not say that it knows tasks."""
    if not can(request):
        missing: dict[str, Any] = {"requiredCapabilities": {"extensions": {protocol.TASKS: {}}}}
        said = f"The client's capabilities lack the extension {protocol.TASKS}."
        raise Refusal(protocol.MISSING_CAPABILITY, said, missing)


class Tasks:
    """One client's."""

    def __init__(self, calls: Calls, toolbox: Toolbox, handles: Handles, host: Host) -> None:
        self._calls = calls
        self._toolbox = toolbox
        self._handles = handles
        self._host = host
        self._tasks: dict[str, Task] = {}
        self._lock = threading.Lock()

    def call(self, request: Request, tool: Tool, arguments: dict[str, Any]) -> None:
        """One that takes long is answered with a handle."""
        self._calls.call(request, tool, arguments, self._asker_of)

    def _asker_of(self, caller: Caller) -> Asker:
        if not can(caller.request) or caller.wanted.method not in long_ones():
            return caller
        name, wanted = caller.tool.tool["name"], caller.wanted
        began = self._host.now_ms()
        handle = Handle(name, wanted.method, wanted.params, began, self._host.salt())
        id = self._handles.id_of(handle)
        task = Called(id, began, caller, self._host, lambda id: self._mark(task))

        def cancel() -> None:  # the request learns how when its call is on its way
            caller.request.on_cancel()

        task.cancel = cancel
        task.once_known(lambda: self._answer(task))
        return task

    def _answer(self, task: Task) -> None:
        """The caller gets the result, if it is there, or the handle."""
        state = task.state
        if "result" in state or task.is_over:
            task.caller.end(state.get("result", {}))
            return
        with self._lock:
            self._keep(task)
        task.caller.end({"resultType": "task", **state})

    def _mark(self, task: Task) -> None:
        """Nobody knows the id of what was cancelled before its handle was given."""
        if task.is_known:
            self._handles.cancel(task.id)

    def _keep(self, task: Task) -> None:
        over = [id for id, one in self._tasks.items() if one.is_over]
        for id in over[: max(0, len(over) - _MOST)]:
            del self._tasks[id]
        self._tasks[task.id] = task

    # --------------------------------------------------------------------------- asking after

    def get(self, request: Request, scopes: Scopes) -> None:
        self._once_known(request, scopes, lambda task: request.reply(task.state))

    def update(self, request: Request, scopes: Scopes) -> None:
        responses = request.params.get("inputResponses")
        if not isinstance(responses, dict):
            raise Refusal(protocol.INVALID_PARAMS, "params.inputResponses must be an object.")

        def known(task: Task) -> None:
            request.reply({})
            task.answer(responses)

        self._once_known(request, scopes, known)

    def cancel(self, request: Request, scopes: Scopes) -> None:
        def known(task: Task) -> None:
            request.reply({})
            task.give_up()

        self._once_known(request, scopes, known)

    def found(self, request: Request, ids: Any, scopes: Scopes) -> list[Task]:
        """Those of them that are there. Raises Refusal."""
        require(request)
        if not isinstance(ids, list):
            raise Refusal(protocol.INVALID_PARAMS, "taskIds must be an array.")
        found = []
        for id in ids[:_MOST]:
            with contextlib.suppress(Refusal):
                found.append(self._find(request, id, scopes))
        return found

    def _once_known(self, request: Request, scopes: Scopes, then: Callable[[Task], None]) -> None:
        """Raises Refusal."""
        require(request)
        task = self._find(request, request.params.get("taskId"), scopes)

        def known() -> None:
            if task.lost is None:
                then(task)
                return
            with self._lock:
                self._tasks.pop(task.id, None)
            request.refuse(Refusal(protocol.INTERNAL_ERROR, task.lost))

        task.once_known(known)

    def _find(self, request: Request, id: Any, scopes: Scopes) -> Task:
        """Raises Refusal. One whose server died goes on where it stopped."""
        if not isinstance(id, str):
            raise Refusal(protocol.INVALID_PARAMS, "A task's id must be a string.")
        with self._lock:
            if (known := self._tasks.get(id)) is not None:
                return known
            handle = self._handles.read(id)
            tool = None if handle is None else self._toolbox.find(handle.tool, scopes)
            if handle is None or tool is None:
                raise Refusal(protocol.INVALID_PARAMS, "There is no such task.")
            wanted = Wanted(handle.method, handle.params)
            caller = Caller(self._calls, request, tool, wanted, None)
            task = Found(id, handle.began_ms, caller, self._host, self._handles.cancel)
            self._keep(task)
        if self._handles.is_cancelled(id):
            task.be_cancelled()
            task.settle()
        else:
            task.cancel = self._calls.ask(tool, wanted, task)
        return task
