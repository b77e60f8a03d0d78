"""Exchanges lines with one implementation, which runs as a child process.

An exchange starts the processes of a conversation one after another, keeps their requests and their
output, and picks the message that a step waits for.

The process has its own process group and runs in the judge's folder. Threads read and write its
lines, so that no caller blocks on a pipe. At the end the whole group is killed, so that nothing
outlives it.
"""

from __future__ import annotations

import contextlib
import io
import os
import queue
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from kbproc.contract.always import Message, ProcessOutput, key, messages, parsed, shown
from kbproc.contract.expect import ABSENT, NotThere, at, resolved
from kbproc.contract.tearing import Tearing

popen = subprocess.Popen
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=", re.ASCII)
_STDERR_BYTES = 2000  # bytes of stderr that a finding shows


class Late(Exception):
    """A message or an exit did not come in time."""


class NotStarted(Exception):
    """The command could not be run."""


def command_of(text: str, places: dict[str, str], variable: str) -> list[str]:
    """Splits a command into words as a shell does, and replaces each `{name}`.

    Without `{store}` or the like, the first place is passed as an environment variable, as are
    assignments before the program. Raises NotStarted for unclosed quotes and for a program that
    does not exist.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise NotStarted(f"{text!r} can't be split into words: {error}") from None
    if not words:
        raise NotStarted("the command is empty")
    command = [_filled(word, places) for word in words]
    program = next((word for word in command if not _ASSIGNMENT.match(word)), None)
    if program is None:
        raise NotStarted("the command names no program")
    begin = command.index(program)
    assignments, command = command[:begin], command[begin:]
    path = dict(one.split("=", 1) for one in assignments).get("PATH")
    if shutil.which(program, path=path) is None:
        raise NotStarted(f"{program} could not be started: there is no such program")
    name, value = next(iter(places.items()))
    if not any("{" + name + "}" in word for word in words):
        assignments = [f"{variable}={value}", *assignments]
    return ["/usr/bin/env", *assignments, *command] if assignments else command


def _filled(word: str, places: dict[str, str]) -> str:
    for name, value in places.items():
        word = word.replace("{" + name + "}", value)
    return word


class ProcessPeer:
    """A process with threads for its pipes, so that no caller waits past its deadline."""

    def __init__(self, command: Sequence[str]) -> None:
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115
        try:
            self.process = popen(
                list(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                start_new_session=True,
            )
        except OSError as error:
            self._stderr.close()
            raise NotStarted(f"{command[0]} could not be started: {error.strerror}") from None
        self._out: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._in: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._deaf = threading.Event()
        self._threads = [  # no Workers, because the kit imports no other package
            threading.Thread(target=_write, args=(self.process, self._out), daemon=True),
            threading.Thread(target=_read, args=(self.process, self._in, self._deaf), daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def send(self, data: bytes) -> None:
        self._out.put(data)

    def end(self) -> None:
        """Closes stdin once everything is written."""
        self._out.put(None)

    def line(self, deadline: float) -> bytes | None:
        """Returns the next line; None at the end of stdout. Raises Late."""
        try:
            line = self._in.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            raise Late from None
        if line is None:
            self._in.put(None)
        return line

    def deafen(self) -> None:
        """Closes our end of its stdout after the next line."""
        self._deaf.set()

    def join(self, deadline: float) -> None:
        """Waits for the end of its stdout. Raises Late."""
        self._threads[1].join(max(0.0, deadline - time.monotonic()))
        if self._threads[1].is_alive():
            raise Late

    def signal(self, number: int) -> None:
        """Sends a signal; SIGKILL goes to the whole process group."""
        with contextlib.suppress(ProcessLookupError):
            if number == signal.SIGKILL:
                os.killpg(self.process.pid, number)
            elif self.process.poll() is None:
                os.kill(self.process.pid, number)

    def wait(self, deadline: float) -> int:
        """Returns the exit code. Raises Late."""
        try:
            return self.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise Late from None

    def kill(self) -> None:
        """Kills the process group and closes the pipes."""
        self.signal(signal.SIGKILL)
        self.process.wait()
        self.end()
        for thread in self._threads:
            thread.join()
        self._stderr.close()

    def stderr_end(self) -> str:
        """Returns the end of its stderr."""
        size = self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(0, size - _STDERR_BYTES))
        return self._stderr.read().decode("utf-8", "replace").strip()


def _write(process: subprocess.Popen[bytes], lines: queue.SimpleQueue[bytes | None]) -> None:
    with contextlib.suppress(OSError), process.stdin or io.BytesIO() as stream:
        while (data := lines.get()) is not None:
            stream.write(data)
            stream.flush()


def _read(
    process: subprocess.Popen[bytes],
    lines: queue.SimpleQueue[bytes | None],
    deaf: threading.Event,
) -> None:
    with process.stdout or io.BytesIO() as stream:
        for line in stream:
            if deaf.is_set():
                break
            lines.put(line)
    lines.put(None)


END_SECONDS = 15.0  # the protocol allows ten
_MOST = 1 << 20  # characters of a line in a transcript


class ExchangeFailed(Exception):
    """The conversation can't go on.

    `broke`: the step's own rule forbids what happened. `cause`: the reason, in words that are the
    same in every conversation. `came`: the message that ended it.
    """

    def __init__(
        self, why: str, *, broke: bool = False, cause: str | None = None, came: str = ""
    ) -> None:
        super().__init__(why)
        self.broke, self.came = broke, came
        self.cause = why if cause is None else cause


class Exchange:
    """Lines to and from the processes of one conversation.

    `named` holds messages that later steps refer to by name; `stream-ID` holds the events of a
    request so far.
    """

    def __init__(self, command: str, arguments: Sequence[str], folder: Path) -> None:
        self.outputs: list[ProcessOutput] = []
        self.named: dict[str, Any] = {}
        self.transcript: list[str] = []
        self.running, self.sent, self.deadline = False, "", 0.0
        self._is_any_answer_due = False
        self._command, self._arguments, self._folder = command, arguments, folder
        self._peer: ProcessPeer | None = None
        self._tearing = Tearing(folder)
        self._unshown: set[str] = set()
        self._numbers = iter(range(1, 1 << 30))

    def start(self) -> None:
        """Starts a new process on the same store. Raises NotStarted."""
        self.stop()
        words = command_of(self._command, {"store": str(self._folder / "store")}, "KBPROC_STORE")
        self._peer = ProcessPeer([*words, *self._arguments])
        self._unread: list[Any] = []
        self.outputs.append(ProcessOutput([], []))
        self.running = True

    def stop(self) -> None:
        if self._peer is not None:
            self._peer.kill()
            self._peer = None

    @property
    def _alive(self) -> ProcessPeer:
        if self._peer is None:
            raise ExchangeFailed("no process is running")
        return self._peer

    def stderr(self) -> str:
        return "" if self._peer is None else self._peer.stderr_end()

    def number(self) -> int:
        return next(self._numbers)

    def add_request(self, id: Any, method: str) -> None:
        self.outputs[-1].requests.append((id, method))

    def send(self, line: bytes, end: bytes = b"\n") -> None:
        self.sent = shown(line)
        self.transcript.append("> " + self.sent.replace("\r", "\\r"))
        self._alive.send(line + end)

    def send_many(self, lines: Sequence[bytes], ids: Sequence[Any]) -> None:
        """Sends lines in one write; the transcript has the first line alone, and no answer."""
        self._unshown |= set(map(key, ids))
        self.send(b"\n".join(lines))
        self.transcript[-1] = f"> {shown(lines[0])} and {len(lines) - 1} more"

    def wait(self, fits: Callable[[Any], bool]) -> Any:
        """Returns the next message that `fits`, keeping others. Raises ExchangeFailed and Late."""
        while True:
            for number, message in enumerate(self._unread):
                if fits(message):
                    return self._unread.pop(number)
            if not self._read():
                if not any(output.lines for output in self.outputs):
                    raise ExchangeFailed("it ended and had said nothing (is the command right?)")
                raise ExchangeFailed("it ended instead of answering", broke=True)

    def refusal(self, fits: Callable[[Any], bool]) -> Any:
        """Returns the answer to a line that is not a request.

        A server that takes the line for a request may answer with an id of its own.
        Raises ExchangeFailed and Late.
        """
        self._is_any_answer_due = True
        try:
            return self.wait(lambda message: fits(message) or any(self._strangers(message)))
        finally:
            self._is_any_answer_due = False

    def finish(self, signal: int | None) -> int:
        """Ends the process and reads its remaining output; returns its exit code.

        None as `signal` closes its stdin.
        """
        peer = self._alive
        self.deadline = time.monotonic() + END_SECONDS
        if signal is None:
            peer.end()
        else:
            peer.signal(signal)
        try:
            while self._read():
                pass
            code = peer.wait(self.deadline)
        except Late:
            raise ExchangeFailed(
                f"it had not ended after {END_SECONDS:g} seconds", broke=True
            ) from None
        self.running, self.outputs[-1].ended = False, signal is None
        self.transcript.append(f"exit {code}")
        return code

    def unread(self, line: bytes) -> int:
        """Reads no more after one answer to the line; returns the exit code after another one.

        Raises Late where the first is not answered.
        """
        self._alive.deafen()
        self.send(line)
        self._alive.join(self.deadline)
        self.send(line)
        try:
            code = self._alive.wait(time.monotonic() + END_SECONDS)
        except Late:
            raise ExchangeFailed(
                f"it had not ended after {END_SECONDS:g} seconds", broke=True
            ) from None
        self.running = False
        self.transcript.append(f"exit {code}")
        return code

    def mark(self) -> None:
        """Keeps the store as it is, for `tear`."""
        self._tearing.mark()

    def tear(self) -> None:
        """Leaves the store as if the machine had stopped in the middle of what was written since
        `mark`. Raises ExchangeFailed if no file has grown.
        """
        if not self._tearing.tear():
            raise ExchangeFailed("no file of the store has only grown, so none can be torn")

    def all_messages(self) -> list[Message]:
        """Returns the messages of all processes, including those inside batches."""
        return [m for output in self.outputs for line in output.lines for m in messages(line)]

    def subject(self, of: Any) -> Any:
        """Returns what an expectation looks at: a named message, answers, or events of a stream."""
        if isinstance(of, str):
            name, slash, pointer = of.partition("/")
            if name not in self.named:
                raise NotThere(f"{name} did not come")
            return at(self.named[name], slash + pointer)
        lines = [parsed(line) for output in self.outputs for line in output.lines]
        if "arrays" in of:
            return [line for line in lines if isinstance(line, list)]
        if "answers" in of:
            id = key(of["answers"])
            messages = lines if of.get("alone") else self.all_messages()
            answers = [m for m in messages if isinstance(m, dict) and "method" not in m]
            return [answer for answer in answers if key(answer.get("id")) == id]
        events = [event_of(message) for message in self.all_messages()]
        events = [e for e in events if e and key(e.get("request_id")) == key(of["events"])]
        if "type" in of:
            events = [e for e in events if e.get("type") in of["type"].split()]
        if "past" in of:
            pointer, least = resolved(of["past"], self.named)
            events = [e for e in events if at(e, pointer) > least]
        if "lacking" in of:
            events = [e for e in events if of["lacking"] not in e]
        if "joined" in of:
            return "".join(str(event.get(of["joined"], "")) for event in events)
        if "only" in of:
            events = [{name: e[name] for name in of["only"] if name in e} for e in events]
        return events[of.get("from", 0) :]

    def model(self, same: Any) -> Any:
        """Returns what another subject must be the same as.

        Raises NotThere if it is absent, because another absent one would be the same.
        """
        model = self.subject(same)
        if model is ABSENT:
            raise NotThere(f"{same} did not come")
        return model

    def _read(self) -> bool:
        """Reads one line; returns False at the end of stdout."""
        line = self._alive.line(self.deadline)
        if line is None:
            return False
        self.outputs[-1].lines.append(line)
        message = parsed(line)
        if not isinstance(message, dict) or key(message.get("id")) not in self._unshown:
            self.transcript.append(f"< {shown(line, _MOST)}")
        if isinstance(message, list | dict):
            self._unread.append(message)
        event = event_of(message)
        if "request_id" in event:
            self.named.setdefault(f"stream-{event['request_id']}", []).append(event)
        elif event.get("type") in {"init", "ready"}:
            self.named[event["type"]] = event
        for stranger in self._strangers(message):
            if self._is_any_answer_due:
                self.outputs[-1].unrequested_ids.append(stranger["id"])
                continue
            raise ExchangeFailed(
                f"an answer came with an id that no request had: {shown(stranger)}"
            )
        return True

    def _strangers(self, message: Any) -> Iterator[Message]:
        ids = {key(id) for id, _ in self.outputs[-1].requests}
        ids |= set(map(key, self.outputs[-1].optional_ids))
        for answer in message if isinstance(message, list) else [message]:
            id = answer.get("id") if isinstance(answer, dict) and "method" not in answer else None
            if id is not None and key(id) not in ids:
                yield answer


def event_of(message: Any) -> Message:
    """Returns the params of an event; empty for any other message."""
    event = message.get("params") if isinstance(message, dict) else None
    return event if isinstance(event, dict) else {}
