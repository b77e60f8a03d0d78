"""What a command prints, in each format.

Owns: the envelope, bare events, jq, what goes to stdout and what to stderr, a
reader that goes away.
Refuses to know: how text for people looks (terminal.py, tables.py) and how answers are made.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TextIO

from kbproc.base.errors import KbprocError
from kbproc.base.values import as_json

if TYPE_CHECKING:
    from kbproc.calls.method import Method


class Jq:
    """A compiled jq program; raises input.invalid_params that quotes jq's complaint."""

    def __init__(self, program: str) -> None:
        import jq

        try:
            self._run = jq.compile(program)
        except ValueError as error:
            raise _bad_jq(error, "no jq program") from None

    def __call__(self, value: Any) -> list[str]:
        """The lines to print: strings bare, anything else as JSON."""
        try:
            found = self._run.input_text(as_json(value).decode()).all()
        except ValueError as error:
            raise _bad_jq(error, "not fit for this answer; the request itself was done") from None
        return [item if isinstance(item, str) else as_json(item).decode() for item in found]


def _bad_jq(error: ValueError, what: str) -> Exception:
    return KbprocError(
        "input.invalid_params",
        f"--jq is {what}: {str(error).splitlines()[0]}.",
        field="--jq",
        hint="It reads the envelope: try --jq .data.",
    )


def write(stream: TextIO, text: str) -> None:
    """Writes at once; a reader that has gone away is no error.

    Raises store.io for an answer that could not be written for another reason.
    """
    with _reported(stream):
        stream.write(text)
        stream.flush()


def write_bytes(stream: TextIO, data: bytes) -> None:
    """The same of bytes as they are."""
    with _reported(stream):
        stream.buffer.write(data)
        stream.flush()


@contextlib.contextmanager
def _reported(stream: TextIO) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        with contextlib.suppress(OSError, ValueError):
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, stream.fileno())
            os.close(null)
        if stream is sys.stdout and not isinstance(error, BrokenPipeError):
            raise KbprocError(
                "store.io",
                f"The answer could not be written to stdout: {error.strerror}.",
                hint="What was asked for has been done; only its answer is lost.",
            ) from None


class Output:
    """The json format, and what all formats share."""

    for_people = False

    def __init__(self, out: TextIO, err: TextIO, jq: Jq | None = None) -> None:
        self.out = out
        self.err = err
        self.jq = jq
        self.profile: str | None = None  # the one in effect
        self.follows: Method | None = None  # one without an end: its items are all that is printed

    def result(self, method: Method | None, params: dict[str, Any], result: dict[str, Any]) -> None:
        """`result` is `{data, meta}`; `method` None: the shell's own answer."""
        if self.jq is None:
            self._print_result(method, params, result)
            return
        for line in self.jq(envelope(result, self.profile)):
            write(self.out, line + "\n")

    def _print_result(
        self, method: Method | None, params: dict[str, Any], result: dict[str, Any]
    ) -> None:
        self._line(self.out, envelope(result, self.profile))

    def event(self, event: dict[str, Any]) -> None:
        """The envelope holds no events; a stream without an end has no envelope."""
        if self.follows is not None and event["type"] == "item":
            self.item(event["item"])

    def item(self, item: dict[str, Any]) -> None:
        if self.jq is None:
            self._line(self.out, item)
            return
        for line in self.jq(item):
            write(self.out, line + "\n")

    def error(self, data: dict[str, Any]) -> None:
        self._line(self.err, {"ok": False, "error": data})

    def plan(self, plan: dict[str, Any]) -> None:
        """Shown before a person is asked."""
        self._line(self.err, {"type": "plan", "plan": plan})

    def note(self, message: str) -> None:
        self._line(self.err, {"type": "warning", "message": message})

    def logged(self, line: str, message: str) -> None:
        """A line of the log, and what it says after its level; only people get it so."""
        write(self.err, line + "\n")

    def question(self, text: str) -> None:
        write(self.err, text)

    def progress(self, stage: str, current: int, total: int | None, message: str = "") -> None:
        """How far the work is; only people see it."""

    def settled(self) -> None:
        """Nothing is going on any more."""

    def _line(self, stream: TextIO, value: Any) -> None:
        write(stream, as_json(value).decode() + "\n")


class Ndjson(Output):
    """Bare events, one a line; a list is an event for each of its items."""

    def _print_result(
        self, method: Method | None, params: dict[str, Any], result: dict[str, Any]
    ) -> None:
        if isinstance(result["data"], list):
            for item in result["data"]:
                self._line(self.out, {"type": "item", "item": item})
            result = {**result, "data": None}
        self._line(self.out, {"type": "result", **result})

    def event(self, event: dict[str, Any]) -> None:
        if self.jq is None:
            self._line(self.out, event)
        else:
            super().event(event)

    def error(self, data: dict[str, Any]) -> None:
        self._line(self.err, {"type": "error", "error": data})


def envelope(result: dict[str, Any], profile: str | None) -> dict[str, Any]:
    ok = "partial" not in result["meta"]
    return {"ok": ok, "data": result["data"], "meta": result["meta"], "profile": profile}
