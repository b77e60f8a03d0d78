"""Does the work of one hook in a child process, and reports it to the parent."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

from kbproc.base.durable import write_all
from kbproc.base.errors import KbprocError
from kbproc.base.host import Host, environment
from kbproc.base.paths import working_folder
from kbproc.base.settings import config as settings
from kbproc.base.settings.config import Config
from kbproc.engine.store import edited_files
from kbproc.engine.store.folder import is_store
from kbproc.engine.store.hook_log import HookFailure, note
from kbproc.surfaces.hooks import protocol
from kbproc.surfaces.hooks.asking import READ_SCOPES, HookQuestion
from kbproc.surfaces.hooks.memory import Memory
from kbproc.surfaces.hooks.options import HookOptions, is_chosen, options_of
from kbproc.surfaces.hooks.protocol import HookEvent
from kbproc.surfaces.hooks.report import answer_lines, report_line

if TYPE_CHECKING:
    from kbproc.engine.store.hook_counts import InjectionKind

# For the person and for the agent, where a prompt's search without an owner did not end in time.
_DELAY = (
    "kbproc did not search for this prompt in time: no process has the store open, and opening it "
    "takes a while on a busy machine. A client with kbproc mcp keeps it open (kbproc mcp install "
    "CLIENT); or allow more time (kbproc hook install CLIENT --deadline-ms 3000). This is said "
    "once in a session.",
    "kbproc had no time to search the user's knowledge base for this prompt; kbproc search does.",
)
_RECORD_SCOPES = ["doc:write", "kb:read"]  # more than those that read
_HEAD_BYTES = 4096


class _StageReporter:
    """The child's end of the pipe to its parent."""

    def __init__(self, writer: int) -> None:
        self._writer = writer
        self.place: Path | None = None
        self.silent_answer = b""

    def silence(self, answer: bytes) -> None:
        """Leaves the parent what it prints for silence, which a failure is answered with, too."""
        self.silent_answer = answer
        write_all(self._writer, report_line("silence", answer.decode()))

    def store(self, store: Path) -> None:
        self.place = store
        write_all(self._writer, report_line("store", str(store)))

    def stage(self, what: str) -> None:
        write_all(self._writer, report_line("stage", what))

    def delay(self, session: str, message: str) -> None:
        """Leaves the parent what it prints if no answer comes in time."""
        for kind, text in (("session", session), ("delay", message)):
            write_all(self._writer, report_line(kind, text))

    def answer(self, data: bytes) -> None:
        write_all(self._writer, answer_lines(data))
        os.close(self._writer)


def work(argv: list[str], writer: int) -> None:
    """Answers the event of this command line; a failure is noted, and its answer says nothing."""
    reporter = _StageReporter(writer)
    try:
        with _answer(argv, reporter) as answer:
            reporter.answer(answer)
        return
    except KbprocError as error:
        problem = error.message
    except OSError as error:
        problem = f"{error.strerror or error}: {error.filename}" if error.filename else str(error)
    except Exception as error:  # noqa: BLE001  the boundary: an agent must not see a traceback
        problem = f"{type(error).__name__}: {error}"
    _note(argv, reporter.place, problem)
    reporter.answer(reporter.silent_answer)


@contextlib.contextmanager
def _answer(argv: list[str], reporter: _StageReporter) -> Iterator[bytes]:
    """Yields the answer; what it needed is closed afterwards. Raises anything."""
    options = options_of(argv)
    if options.event != "tool":  # because run.py notes no deadline of such a hook
        reporter.store(_store_of(options, working_folder()))
    reporter.stage("reading the event")
    try:
        event = protocol.read(options.event, _stdin())
    except (KbprocError, OSError):
        reporter.store(_store_of(options, working_folder()))
        raise
    reporter.silence(protocol.written(event, ""))
    folder = working_folder() if event.folder is None else Path(event.folder).absolute()
    config = options.config(folder)
    reporter.store(config.store)
    if config.notes:
        raise KbprocError("input.invalid_params", config.notes[0])
    if not is_chosen(config):
        yield reporter.silent_answer
        return
    with contextlib.ExitStack() as stack:
        work = _HookWork(event, options, config, folder, reporter, stack)
        yield protocol.written(event, work.context())


class _HookWork(NamedTuple):
    """The work for one event; `stack` closes what it opened once the answer was passed on."""

    event: HookEvent
    options: HookOptions
    config: Config
    folder: Path
    reporter: _StageReporter
    stack: contextlib.ExitStack

    def context(self) -> str:
        """Returns the text for the agent; "" for none."""
        kind = self.event.event
        if kind == "pre-compact":
            self._record()
            return ""
        if kind == "tool":
            return self._of_act()
        self.reporter.stage("opening its files in the store")
        memory = self._memory()
        now = Host().now()
        if kind == "session-end":
            memory.keep_end(now)
            self._count_use()
            self._record()
            return ""
        if kind == "prompt":
            from kbproc.surfaces.hooks import prompt

            query = prompt.query_of(self.event.prompt) if self.event.is_from_person else ""
            if not query:
                return ""
        self.reporter.stage("reaching the process that has the store open")
        asking = self._asking()
        if asking.is_attached:
            self.reporter.stage("waiting for the process that has the store open")
        else:
            self.reporter.stage("opening the store, which no process has open")
            if kind == "prompt" and self.event.session is not None and self.event.is_shown:
                self.reporter.delay(self.event.session, protocol.delayed(self.event, *_DELAY))
        most, allowed = self.options.tokens, self.options.quote
        if kind == "prompt":
            text = prompt.context(asking, self.config, query, memory, most, allowed, self.folder)
        else:
            from kbproc.surfaces.hooks import start

            text = start.context(asking, self.config, self.event, memory, now, most, allowed)
        self._count(memory, text)
        return text

    def _of_act(self) -> str:
        """Returns what the store says of what a tool does; "" unless a process has the store open.

        Opening the store would take longer than an agent should wait before each of its acts.
        """
        from kbproc.surfaces.hooks.act import act_of

        act = act_of(self.event.tool_input, str(self.folder), error=self.event.error)
        if act.path is not None:
            edited_files.note(self.config.store, act.path, Host().now_ms())
        if not act.query:
            return ""
        self.reporter.stage("waiting for the process that has the store open")
        asking = self._asking()
        if not asking.is_attached:
            return ""
        from kbproc.surfaces.hooks import tool

        memory = self._memory()
        most, allowed = self.options.tokens, self.options.quote
        text = tool.context(asking, self.config, act, memory, most, allowed, self.folder)
        self._count(memory, text)
        return text

    def _count(self, memory: Memory, text: str) -> None:
        """Counts an answer that the agent gets, if the user has turned that on."""
        if not (self.options.count and self.event.is_shown):
            return
        from kbproc.surfaces.hooks.counting import count_injection

        count_injection(
            self.config.store,
            now=Host().now(),
            session=self.event.session,
            kind=cast("InjectionKind", self.event.event),
            text=text,
            ids=memory.quoted_ids,
        )

    def _count_use(self) -> None:
        """Counts the texts that the agent has found and used, if the user has turned that on."""
        event, store = self.event, self.config.store
        if not self.options.count or event.session is None or event.transcript is None:
            return
        from kbproc.surfaces.hooks import counting

        ids = counting.quoted_ids(store, event.session)
        self.reporter.stage("counting what the session has used")
        check_transcript(event.transcript)
        counting.count_use(
            store,
            now=Host().now(),
            session=event.session,
            transcript=Path(event.transcript),
            ids=ids,
            ask=self._asking,
        )

    def _record(self) -> None:
        """Adds the session to the store, if the user has turned that on."""
        if self.options.record and self.event.transcript is not None:
            self.reporter.stage("recording the session")
            check_transcript(self.event.transcript)
            record(self._asking(_RECORD_SCOPES), self.config, self.event.transcript)

    def _asking(self, scopes: Sequence[str] = READ_SCOPES) -> HookQuestion:
        asking = HookQuestion(self.config, self.folder, scopes)
        self.stack.callback(asking.close)
        return asking

    def _memory(self) -> Memory:
        project = _project(self.config, self.folder)
        is_shown = self.event.is_shown
        return Memory(self.config.store, self.event.session, project, is_shown=is_shown)


def record(asking: HookQuestion, config: Config, transcript: str) -> None:
    """Adds the session, or its new revision. Raises the errors of doc.ingest."""
    asking.all([("doc.ingest", {"paths": [transcript], "kb": config.kb})])


def check_transcript(transcript: str) -> None:
    """Raises input.unsupported_type for a file that is no session log; OSError.

    A client's event names any file that it likes, and only conversations lose their secrets.
    """
    from kbproc.engine.sources.parse.formats import detect

    path = Path(transcript)
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    if detect(path.name, head) != "conversation":
        message = f"{path} was not recorded: it is no session log whose shape is known."
        raise KbprocError("input.unsupported_type", message)


def _project(config: Config, folder: Path) -> str:
    """Returns the name of the project, which the worktrees of a repository share."""
    origin = config.origins.get("store", settings.DEFAULT)
    return str(origin.name) if origin.level == "link" else str(folder)


def _stdin() -> bytes:
    """Returns the bytes of stdin; it stops at the first block beyond what an event may have.

    Raises OSError.
    """
    parts, size = [], 0
    while size <= protocol.MOST_BYTES:
        part = os.read(0, 1 << 16)
        if not part:
            break
        parts.append(part)
        size += len(part)
    return b"".join(parts)


def _store_of(options: HookOptions, folder: Path) -> Path:
    """Returns the store whose log notes that an event can't be read."""
    try:
        return options.config(folder).store
    except (KbprocError, OSError):
        return settings.bare(environment()).store


def _note(argv: list[str], store: Path | None, problem: str) -> None:
    """Notes a failure in the store's hook log, if it can be written."""
    place = store or settings.bare(environment()).store
    failure = HookFailure(ts=Host().now(), event=argv[0][:40], problem=problem)
    with contextlib.suppress(OSError, KbprocError):
        if is_store(place):
            note(place, failure)
