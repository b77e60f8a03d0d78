"""One command that asks a method, from params to an exit code.

Owns: asking, a person's approval of a plan, what is printed, embedding what is new after
the answer, Ctrl-C.
Refuses to know: how command lines are read, and formats.
"""

from __future__ import annotations

import contextlib
import select
import signal
import sys
import threading
import time
from base64 import b64decode
from collections.abc import Iterator
from typing import Any

import msgspec

from kbproc.base.errors import KbprocError
from kbproc.base.host import Host
from kbproc.base.wording import plural
from kbproc.calls.flags import SHELL_BYTES
from kbproc.calls.method import Method
from kbproc.calls.registry import Registry
from kbproc.calls.typed import argv_of
from kbproc.sessions.heard import Heard
from kbproc.settings.config import Config
from kbproc.sharing.alone import Backend
from kbproc.sharing.attached import Anywhere
from kbproc.shell.arguments import Options
from kbproc.shell.params import fill
from kbproc.shell.printing.formats import Output, write_bytes
from kbproc.shell.words import Words, approval, unknown_kb
from kbproc.store.folder import require_store
from kbproc.wire.messages import error_data

INTERRUPTED = 130
_LOOK_MS = 250


def data_of(error: KbprocError) -> dict[str, Any]:
    """An error as the formats print it."""
    data: dict[str, Any] = msgspec.to_builtins(error_data(error))
    return data


def run(
    registry: Registry,
    method: Method,
    params: dict[str, Any],
    options: Options,
    *,
    typed: bool = True,
) -> int:
    """Returns the exit code; raises KbprocError for what is refused before asking.

    `typed`: the params were typed as flags, and errors speak of them so.
    """
    host = Host()
    _log(options, host)
    filled = fill(method, params, options)
    if method.needs_store and not _makes_store(method, filled):
        require_store(options.config.store, named="store" in options.config.origins)
    backend = Anywhere(config=options.config, registry=registry, host=host)
    command = _Command(registry, method, filled, options, backend, typed)
    try:
        return command.run()
    except KeyboardInterrupt:
        return command.interrupted()
    finally:
        options.output.settled()
        backend.close()


def ask(name: str, params: dict[str, Any], config: Config) -> Any:
    """What a method answers, for a command that is none itself. Raises KbprocError."""
    from kbproc.methods.all import registry

    backend = Anywhere(config=config, registry=registry(), host=Host())
    try:
        response = backend.ask(name, params, lambda event: None)
    finally:
        backend.close()
    if "error" not in response:
        return response["result"]["data"]
    data = response["error"]["data"]
    said = {name: data.get(name) for name in ("hint", "field", "valid_values", "detail")}
    raise KbprocError(data["type"], data["message"], **said)


def _makes_store(method: Method, params: dict[str, Any]) -> bool:
    """Whether there need be no store yet: only what adds to one makes one."""
    return method.kind == "write" and not method.elsewhere and not params.get("dry_run")


class _Command:
    def __init__(
        self,
        registry: Registry,
        method: Method,
        params: dict[str, Any],
        options: Options,
        backend: Backend,
        typed: bool,
    ) -> None:
        self._typed = typed
        self._registry = registry
        self._method = method
        self._params = params
        self._options = options
        self._backend = backend
        timeout_ms = params.get("timeout_ms")
        self._deadline = None if timeout_ms is None else time.monotonic() + timeout_ms / 1000
        self._was_interrupted = False
        self._nobody_reads = threading.Event()
        self._heard = Heard(options.output.event)

    @property
    def _output(self) -> Output:
        return self._options.output

    def run(self) -> int:
        before = self._position()
        response = self._ask_all(self._params) if self._options.all else self._ask(self._params)
        error = response.get("error", {}).get("data", {})
        if "plan" in error and error["type"] == "input.confirmation_required":
            self._output.settled()
            again = self._options.again
            error["hint"] = approval(self._method, self._params, error["plan"]["plan_hash"], again)
            if self._approved(error):
                response = self._ask({**self._params, "confirm": error["plan"]["plan_hash"]})
        if self._nobody_reads.is_set():
            return 0
        code = self._answered(response)
        if self._options.wait and self._wrote(response):
            written = response.get("result", {}).get("meta", {}).get("seq", 1)
            self._embed_the_rest(written - 1 if before is None else before)
        return code

    def _position(self) -> int | None:
        """Where the log stands before a write of several records; None for one of one record."""
        if self._method.kind == "read" or not self._method.streams or not self._options.wait:
            return None
        response = self._backend.ask("ping", {}, lambda event: None)
        return int(response.get("result", {}).get("data", {}).get("seq", 0))

    def _wrote(self, response: dict[str, Any]) -> bool:
        is_write = self._method.kind != "read" and not self._params.get("dry_run")
        return is_write and "result" in response

    def interrupted(self) -> int:
        return self._failed({**data_of(self._heard.interrupted()), "exit_code": INTERRUPTED})

    def _ask(self, params: dict[str, Any]) -> dict[str, Any]:
        endless = self._method.streams and self._method.result is None
        self._output.follows = self._method if endless else None
        writes = self._method.kind != "read"
        with contextlib.ExitStack() as watches:
            pressed = watches.enter_context(_interrupts(self._backend, writes=writes))
            if endless:
                watches.enter_context(_reader(self._backend, self._nobody_reads))
            response = self._backend.ask(self._method.name, params, self._heard.event)
        self._was_interrupted = pressed.is_set()
        return response

    def _ask_all(self, params: dict[str, Any]) -> dict[str, Any]:
        """A list's pages as one answer; the first error is the answer."""
        response = self._ask(params)
        items = response.get("result", {}).get("data", [])
        while "next_cursor" in response.get("result", {}).get("meta", {}):
            cursor = response["result"]["meta"]["next_cursor"]
            response = self._ask({**params, "cursor": cursor})
            items += response.get("result", {}).get("data", [])
        if "result" in response:
            meta = {**response["result"]["meta"], "count": len(items)}
            response["result"] = {"data": items, "meta": meta}
        return response

    def _approved(self, error: dict[str, Any]) -> bool:
        """Whether to go on; raises operation.cancelled if a person says no."""
        plan, bulk = error["plan"], error["plan"]["risk"]["level"] == "bulk"
        if self._options.yes:
            if bulk and self._options.yes != "bulk":
                error["hint"] = f"The plan is bulk: only --yes=bulk approves it. {error['hint']}"
                return False
            return True
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            return False
        self._output.plan(plan)
        self._output.question("Type bulk to do this: " if bulk else "Do this? [y/N] ")
        typed = sys.stdin.readline().strip().lower()
        if typed not in ({"bulk"} if bulk else {"y", "yes"}):
            raise KbprocError(
                "operation.cancelled",
                "Not approved: nothing was changed.",
                hint=f"Run it again and type {'bulk' if bulk else 'y'} if it is to be done.",
            )
        return True

    def _answered(self, response: dict[str, Any]) -> int:
        if "error" in response:
            return self._failed(response["error"]["data"])
        result = response["result"]
        if self._wants_bytes:
            return self._write_bytes(result)
        if self._options.strict and not result["data"]["healthy"]:
            raise KbprocError(
                "operation.failed", "Not everything is healthy.", detail=result["data"]
            )
        if self._typed:
            words = Words(self._registry, self._method)
            result = {**result, "meta": words.of_meta(result["meta"])}
        self._output.result(self._method, self._params, result)
        if "partial" in result["meta"]:
            return self._failed(_partial(result))
        return 0

    @property
    def _wants_bytes(self) -> bool:
        options = self._options
        of_file = self._method.name in SHELL_BYTES and "path" not in self._params
        return of_file and options.prints_bytes and self._output.jq is None

    def _write_bytes(self, result: dict[str, Any]) -> int:
        """A source as it is, part by part."""
        member, sha256 = SHELL_BYTES[self._method.name], result["data"]["sha256"]
        while True:
            data, more = result["data"], result["meta"]["has_more"]
            write_bytes(self._output.out, b64decode(data[member]))
            if not more or "length" in self._params:
                return 0
            offset = data["offset"] + data["length"]
            response = self._ask({**self._params, "offset": offset})
            if "error" in response:
                return self._failed(response["error"]["data"])
            result = response["result"]
            if result["data"]["sha256"] != sha256:
                raise KbprocError(
                    "resource.conflict",
                    "The document was changed while it was being written out.",
                    hint="Ask again: what was written so far is of the old content.",
                )

    def _failed(self, data: dict[str, Any]) -> int:
        """Prints an error, with its retry as a command line."""
        hint = unknown_kb(data, self._params.get("kb"), self._options.bound)
        data = Words(self._registry, self._method).of(data) if self._typed else data
        if hint is not None:
            data["hint"] = hint
        if self._was_interrupted and data["type"] == "operation.cancelled":
            data["exit_code"] = INTERRUPTED
        retry = data.get("retry", {})
        method = self._registry.methods.get(retry.get("method", ""))
        if method is not None and set(retry["params"]) <= set(method.params.__struct_fields__):
            retry["argv"] = [*argv_of(method, retry["params"]), *self._options.again]
        self._output.error(data)
        return int(data["exit_code"])

    def _embed_the_rest(self, after_seq: int) -> None:
        """What this command has written; what others have is theirs to wait for."""
        show = self._output.progress
        left = self._backend.drain(
            after_seq, lambda current, total: show("embed", current, total), self._deadline
        )
        if left:
            are = "is" if left == 1 else "are"
            self._output.note(
                f"{plural(left, 'chunk')} {are} found by words alone until a later command embeds "
                f"{'it' if left == 1 else 'them'}."
            )


def _partial(result: dict[str, Any]) -> dict[str, Any]:
    """What is said of an answer in which some items failed, after the answer."""
    partial = result["meta"]["partial"]
    error = KbprocError(partial["type"], partial["message"], detail=result["data"])
    return data_of(error)


@contextlib.contextmanager
def _interrupts(backend: Backend, *, writes: bool) -> Iterator[threading.Event]:
    """A write is asked to stop at the first Ctrl-C and torn off at the second; a read at once.

    Yields an event that is set once Ctrl-C was pressed.
    """
    pressed = threading.Event()
    if not writes or threading.current_thread() is not threading.main_thread():
        yield pressed
        return
    usual = signal.getsignal(signal.SIGINT)

    def once(signum: int, frame: object) -> None:
        signal.signal(signal.SIGINT, usual)
        pressed.set()
        backend.cancel()

    signal.signal(signal.SIGINT, once)
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, usual)


@contextlib.contextmanager
def _reader(backend: Backend, gone: threading.Event) -> Iterator[None]:
    """What never ends by itself ends once nobody reads stdout any more, as after `| head -1`."""
    over = threading.Event()
    watched = select.poll()
    watched.register(1, 0)

    def watch() -> None:
        while not over.is_set():
            if watched.poll(_LOOK_MS):
                gone.set()
                backend.cancel()
                return

    thread = threading.Thread(target=watch, name="reader", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()


def _log(options: Options, host: Host) -> None:
    """People get lines of the log as text, programs get NDJSON."""
    from kbproc.wire.logs import log_to_stderr, set_level

    if not options.output.for_people:
        log_to_stderr(options.config.log_level, host)
        return
    import logging

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            try:
                options.output.logged(self.format(record), record.getMessage())
            except (OSError, ValueError):  # nobody reads the log: no reason to fail
                self.handleError(record)

    handler = Lines()
    logging.basicConfig(format="%(levelname)s: %(message)s", handlers=[handler], force=True)
    set_level(options.config.log_level)
