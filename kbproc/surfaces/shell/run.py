"""Runs a command that asks a method, from params to an exit code.

A person may have to approve the plan first. After the answer, chunks that the command has
added are embedded. Ctrl-C cancels the request.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from kbproc.base.errors import KbprocError, Retry
from kbproc.base.host import Host
from kbproc.base.spared import set_up_logging
from kbproc.base.wording import pending_in_words, plural
from kbproc.engine.store.folder import require_store
from kbproc.methods.calls.flags import BULK, SHELL_BYTES, Described, argv_of
from kbproc.surfaces.shell.params import fill
from kbproc.surfaces.shell.printing.formats import Output, write_bytes

if TYPE_CHECKING:
    from kbproc.methods.calls.method import Method
    from kbproc.methods.calls.registry import Registry
    from kbproc.surfaces.sharing.command import Command
    from kbproc.surfaces.shell.arguments import Options

INTERRUPTED = 130
_IS_BULK = f"The plan is bulk: it removes {BULK}."
_ADD_YES = "A person who approves of it adds --yes, or runs the command in a terminal, which asks."
_NOT_YES = (
    "--yes approves of the address that was typed only: a person who approves of this one, too, "
    "runs the command in a terminal, which asks."
)
_TYPE_Y = "Run it again and type y if it is to be done."
_LATER = "Later commands find them by meaning, too."
_LOOK_MS = 250
_TEXTS = frozenset({"hint", "notice"})  # members of an answer's meta that may name methods
# They add many texts, so that a note is worth it that a model is missing.
_ADDS_FILES = frozenset({"doc.ingest", "chats.add"})


class StreamProgress:
    """The progress of a stream; an interrupted client gets the call that continues the answer."""

    def __init__(self, on_event: Callable[[dict[str, Any]], None]) -> None:
        self._on_event = on_event
        self._answer: dict[str, Any] = {}

    def event(self, event: dict[str, Any]) -> None:
        if "session_id" in event:
            self._answer = {name: event[name] for name in ("session_id", "message_id")}
        elif "cursor" in event and self._answer:
            self._answer["after"] = event["cursor"]
        self._on_event(event)

    def interrupted(self) -> KbprocError:
        if not self._answer:
            return KbprocError("operation.cancelled", "Interrupted.")
        return KbprocError(
            "operation.cancelled",
            "Interrupted; the answer may go on.",
            hint="session.resume continues from here.",
            retry=Retry(method="session.resume", params=self._answer),
        )


def data_of(error: KbprocError) -> dict[str, Any]:
    """Returns an error's data, which the formats print."""
    from kbproc.surfaces.wire.messages import error_data  # not above: most commands have no error

    data: dict[str, Any] = msgspec.to_builtins(error_data(error))
    return data


def run(
    registry: Registry,
    method: Described,
    params: dict[str, Any],
    options: Options,
    *,
    typed: bool = True,
) -> int:
    """Returns the exit code. Raises KbprocError for a command that is refused before asking.

    `typed`: the params were typed as flags, so that errors name the flags.
    """
    host = Host()
    _log(options, host)
    filled = fill(method, params, options)
    if method.needs_store and not _makes_store(method, filled):
        require_store(options.config.store, named="store" in options.config.origins)

    def make_command(approved_addresses: Collection[str] = ()) -> Command:
        from kbproc.surfaces.sharing.command import Command

        return Command(
            config=options.config,
            registry=registry,
            host=host,
            approved_addresses=approved_addresses,
        )

    command = _MethodCommand(registry, method, filled, options, make_command, typed)
    try:
        return command.run()
    except KeyboardInterrupt:
        return command.interrupted()
    finally:
        options.output.settled()
        command.close()


def _makes_store(method: Described, params: dict[str, Any]) -> bool:
    """Returns true for a method that makes the store where there is none."""
    return method.kind == "write" and not method.elsewhere and not params.get("dry_run")


class MakeCommand(Protocol):
    def __call__(self, approved_addresses: Collection[str] = ()) -> Command:
        """Returns a command, which allows the approved private addresses."""


class _MethodCommand:
    def __init__(
        self,
        registry: Registry,
        method: Described,
        params: dict[str, Any],
        options: Options,
        make_command: MakeCommand,
        typed: bool,
    ) -> None:
        self._typed = typed
        self._make_command = make_command
        self._registry = registry
        self._method = method
        self._params = params
        self._options = options
        self._command = make_command()
        timeout_ms = params.get("timeout_ms")
        self._deadline = None if timeout_ms is None else time.monotonic() + timeout_ms / 1000
        self._was_interrupted = False
        self._reader_gone = threading.Event()
        self._heard = StreamProgress(options.output.event)

    @property
    def _output(self) -> Output:
        return self._options.output

    def run(self) -> int:
        before, error = self._position()
        if error.get("type") == "operation.timeout":  # the command's time is up
            return self._print_error(error)
        response = self._ask_all(self._params) if self._options.all else self._ask(self._params)
        error = response.get("error", {}).get("data", {})
        if "plan" in error and error["type"] == "input.confirmation_required":
            from kbproc.surfaces.shell.words import approval

            self._output.settled()
            again = self._options.again
            error["hint"] = approval(self._method, self._params, error["plan"]["plan_hash"], again)
            if self._approved(error):
                response = self._ask({**self._params, "confirm": error["plan"]["plan_hash"]})
        if self._options.allow_private_addresses:
            response = self._ask_at_private_addresses(response)
        if self._reader_gone.is_set():
            return 0
        code = self._print_answer(response)
        if self._wrote(response):
            if self._options.wait:
                self._embed_the_rest(self._first_new(response, before))
            elif self._method.name in _ADDS_FILES:
                self._tell_pending()
        return code

    def close(self) -> None:
        self._command.close()

    def _ask_at_private_addresses(self, response: dict[str, Any]) -> dict[str, Any]:
        """Asks again while a person approves the private address that blocked the request.

        An approval opens one address; a redirect to another needs its own approval. Raises for
        an address without approval.
        """
        approved: list[str] = []
        while (address := _blocked_address(response)) and address not in approved:
            self._output.settled()
            is_redirect = "redirected" in response["error"]["data"]["detail"]
            # --yes approves only the typed address, because the person knows no redirect's target.
            if is_redirect or not self._options.yes:
                self._approve_address(address, is_redirect=is_redirect)
            approved.append(address)
            self._command.close()
            self._command = self._make_command(approved)
            response = self._ask(self._params)
        return response

    def _approve_address(self, address: str, *, is_redirect: bool) -> None:
        """Raises unless a person in the terminal approves of the address."""
        notice = f"{address} is a private or local address"
        if is_redirect:
            notice = f"The page leads to {address}, a private or local address"
        from kbproc.base import person  # not above: few commands ask

        if not person.is_there():
            raise KbprocError(
                "input.confirmation_required",
                f"{notice}: a person must approve of it.",
                field="--allow-private-addresses",
                hint=_NOT_YES if is_redirect else _ADD_YES,
            )
        self._output.question(f"{notice}. Ask it? [y/N] ")
        if not person.agrees(person.typed()):
            raise KbprocError(
                "operation.cancelled", "Not approved: nothing was fetched.", hint=_TYPE_Y
            )

    def _position(self) -> tuple[int | None, dict[str, Any]]:
        """Returns the log's seq before a write of several records, and the error of asking for it.

        The seq is None for other methods.
        """
        if self._method.kind == "read" or not self._method.streams or not self._options.wait:
            return None, {}
        timeout = {name: ms for name, ms in self._params.items() if name == "timeout_ms"}
        response = self._command.ask("ping", timeout, lambda event: None)
        seq = int(response.get("result", {}).get("data", {}).get("seq", 0))
        return seq, response.get("error", {}).get("data", {})

    def _wrote(self, response: dict[str, Any]) -> bool:
        is_write = self._method.kind != "read" and not self._params.get("dry_run")
        return is_write and "result" in response

    def _first_new(self, response: dict[str, Any], before: int | None) -> int:
        """Returns the position after which this command's chunks may lack vectors."""
        if self._method.name == "model.install":  # texts from before get vectors, too
            return 0
        written: int = response["result"]["meta"].get("seq", 1)
        return written - 1 if before is None else before

    def interrupted(self) -> int:
        return self._print_error({**data_of(self._heard.interrupted()), "exit_code": INTERRUPTED})

    def _ask(self, params: dict[str, Any]) -> dict[str, Any]:
        endless = self._method.is_endless
        self._output.follows = self._registry.find(self._method.name) if endless else None
        writes = self._method.kind != "read"
        with contextlib.ExitStack() as watches:
            pressed = watches.enter_context(_interrupts(self._command, writes=writes))
            if endless:
                watches.enter_context(_reader_watch(self._command, self._reader_gone))
            response = self._command.ask(self._method.name, params, self._heard.event)
        self._was_interrupted = pressed.is_set()
        return response

    def _ask_all(self, params: dict[str, Any]) -> dict[str, Any]:
        """Returns a list's pages as one answer, or the first error."""
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
        """Returns true if the plan is approved. Raises operation.cancelled if a person declines."""
        plan, bulk = error["plan"], error["plan"]["risk"]["level"] == "bulk"
        if self._options.yes:
            if bulk and self._options.yes != "bulk":
                error["hint"] = f"{_IS_BULK} Only --yes=bulk approves it. {error['hint']}"
                return False
            return True
        from kbproc.base import person  # not above: few commands ask

        if not person.is_there():
            return False
        self._output.plan(plan)
        self._output.question(f"{_IS_BULK} Type bulk to do this: " if bulk else "Do this? [y/N] ")
        line = person.typed()
        if not (line == "bulk" if bulk else person.agrees(line)):
            raise KbprocError(
                "operation.cancelled",
                "Not approved: nothing was changed.",
                hint="Run it again and type bulk if it is to be done." if bulk else _TYPE_Y,
            )
        return True

    def _print_answer(self, response: dict[str, Any]) -> int:
        if "error" in response:
            return self._print_error(response["error"]["data"])
        result = response["result"]
        if self._wants_bytes:
            return self._write_bytes(result)
        if self._options.strict and not (result["data"] or {}).get("healthy", True):
            raise KbprocError(
                "operation.failed", "At least one check failed.", detail=result["data"]
            )
        if self._typed and not _TEXTS.isdisjoint(result["meta"]):
            from kbproc.surfaces.shell.words import Words

            words = Words(self._registry.outlines, self._method)
            result = {**result, "meta": words.of_meta(result["meta"])}
        self._output.result(self._drawn_method, self._params, result)
        if "partial" in result["meta"]:
            return self._print_error(_partial(result))
        if self._options.strict and (error := _unread_files(result)):
            return self._print_error(data_of(error))
        return 0

    @property
    def _wants_bytes(self) -> bool:
        options = self._options
        of_file = self._method.name in SHELL_BYTES and "path" not in self._params
        return of_file and options.prints_bytes and self._output.jq is None

    def _write_bytes(self, result: dict[str, Any]) -> int:
        """Writes a source's bytes to stdout, part by part."""
        from base64 import b64decode

        member, sha256 = SHELL_BYTES[self._method.name], result["data"]["sha256"]
        while True:
            data, more = result["data"], result["meta"]["has_more"]
            write_bytes(self._output.out, b64decode(data[member]))
            if not more or "length" in self._params:
                return 0
            offset = data["offset"] + data["length"]
            response = self._ask({**self._params, "offset": offset})
            if "error" in response:
                return self._print_error(response["error"]["data"])
            result = response["result"]
            if result["data"]["sha256"] != sha256:
                raise KbprocError(
                    "resource.conflict",
                    "The document was changed while it was being written out.",
                    hint="Ask again: what was written so far is of the old content.",
                )

    def _print_error(self, data: dict[str, Any]) -> int:
        """Prints an error with its retry as a command line; returns the exit code."""
        from kbproc.surfaces.shell.words import Words, unknown_kb

        hint = unknown_kb(data, self._params.get("kb"), self._options.bound)
        data = Words(self._registry.outlines, self._method).of(data) if self._typed else data
        if hint is not None:
            data["hint"] = hint
        if self._was_interrupted and data["type"] == "operation.cancelled":
            data["exit_code"] = INTERRUPTED
        retry = data.get("retry", {})
        method = self._registry.outlines.methods.get(retry.get("method", ""))
        if method is not None and set(retry["params"]) <= set(method.members):
            retry["argv"] = [*argv_of(method, retry["params"]), *self._options.again]
        self._output.error(data)
        return int(data["exit_code"])

    @property
    def _drawn_method(self) -> Method | None:
        """Returns the method with its layout, which only answers for people have."""
        is_drawn = self._output.for_people
        return self._registry.find(self._method.name) if is_drawn else None

    def _embed_the_rest(self, after_seq: int) -> None:
        """Embeds the chunks that this command has written, not those of other commands."""
        from kbproc.surfaces.shell.waiting import EmbeddingWait  # not above: few commands wait

        waiting = EmbeddingWait(self._output)
        pending = self._command.drain(after_seq, waiting.progress, self._deadline)
        # Without a model, the note would follow each small write.
        if pending and (self._command.model_problem is None or self._method.name in _ADDS_FILES):
            self._tell_pending()

    def _tell_pending(self) -> None:
        """Prints how many of the store's passages lack their vectors, if any do."""
        result = self._command.ask("status", {}, lambda event: None).get("result")
        if result is None:
            return
        total = result["data"]["total_chunks"]
        pending = min(total, result["meta"]["freshness"]["pending_embeddings"])
        if pending:
            problem = self._command.model_problem
            self._output.note(f"{pending_in_words(pending, total)} {problem or _LATER}")


def _blocked_address(response: dict[str, Any]) -> str | None:
    """Returns the private address that blocked a fetch; None if none did."""
    error = response.get("error", {}).get("data", {})
    if error.get("type") != "network.blocked":
        return None
    address: str | None = error["detail"].get("address")
    return address


def _partial(result: dict[str, Any]) -> dict[str, Any]:
    """Returns the error to print after an answer in which some items failed."""
    partial = result["meta"]["partial"]
    error = KbprocError(partial["type"], partial["message"], detail=result["data"])
    return data_of(error)


def _unread_files(result: dict[str, Any]) -> KbprocError | None:
    """Returns the error of an ingest, or of its plan, with failed files; None without any."""
    plan = result["meta"].get("plan")
    if plan is None:
        failed = (result["data"] or {}).get("failed")
        message, hint = "{} could not be read, as before.", None
    else:
        failed = plan.get("counts", {}).get("failed")
        message = "{} can't be read."
        hint = "Nothing was written. The command without --dry-run lists what failed and why."
    if not failed:
        return None
    message = message.format(plural(failed, "file"))
    return KbprocError("operation.partial", message, detail=result["data"], hint=hint)


@contextlib.contextmanager
def _interrupts(command: Command, *, writes: bool) -> Iterator[threading.Event]:
    """Makes the first Ctrl-C cancel a write, and the second abort it; a read aborts at once.

    Yields an event that is set once Ctrl-C is pressed.
    """
    pressed = threading.Event()
    if not writes or threading.current_thread() is not threading.main_thread():
        yield pressed
        return
    previous = signal.getsignal(signal.SIGINT)

    def once(signum: int, frame: object) -> None:
        signal.signal(signal.SIGINT, previous)
        pressed.set()
        command.cancel()

    signal.signal(signal.SIGINT, once)
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, previous)


@contextlib.contextmanager
def _reader_watch(command: Command, reader_gone: threading.Event) -> Iterator[None]:
    """Cancels an endless stream once stdout has no reader any more, as after `| head -1`."""
    import select  # not above: few streams are endless

    from kbproc.base.workers import Worker

    watched = select.poll()
    watched.register(1, 0)

    def look(is_woken: bool) -> float | None:
        if not watched.poll(_LOOK_MS):
            return 0.0
        reader_gone.set()
        command.cancel()
        return None

    watch = Worker("reader", look)
    watch.start()
    try:
        yield
    finally:
        watch.stop()


def _log(options: Options, host: Host) -> None:
    """Has the log set up with its first line, because few commands write any."""
    set_up_logging(options.config.log_level, partial(_begin_log, options, host))


def _begin_log(options: Options, host: Host) -> None:
    """Sets up the log: people get its lines as text, programs as NDJSON."""
    import logging

    from kbproc.surfaces.wire.logs import log_to_stderr, set_level

    if not options.output.for_people:
        log_to_stderr(options.config.log_level, host)
        return

    class LogText(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            with contextlib.suppress(OSError, ValueError):  # a log without a reader is no failure
                options.output.logged(self.format(record), record.getMessage())

    handler = LogText()
    logging.basicConfig(format="%(levelname)s: %(message)s", handlers=[handler], force=True)
    set_level(options.config.log_level)
