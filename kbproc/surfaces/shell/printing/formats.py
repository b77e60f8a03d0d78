"""Prints a command's answers, events and errors as json or ndjson, also through jq.

Answers go to stdout, errors and remarks to stderr. A reader that goes away is no error.
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
    from kbproc.methods.calls.method import Method


class Jq:
    """A compiled jq program; raises input.invalid_params that quotes jq's complaint."""

    def __init__(self, program: str) -> None:
        import jq

        try:
            self._run = jq.compile(program)
        except ValueError as error:
            raise _bad_jq(error, "not a jq program") from None

    def __call__(self, value: Any) -> list[str]:
        """Returns the lines to print: strings bare, other values as JSON."""
        try:
            values = self._run.input_text(as_json(value).decode()).all()
        except ValueError as error:
            raise _bad_jq(error, "not fit for this answer (the request was carried out)") from None
        return [item if isinstance(item, str) else as_json(item).decode() for item in values]


def _bad_jq(error: ValueError, problem: str) -> Exception:
    return KbprocError(
        "input.invalid_params",
        f"--jq is {problem}: {str(error).splitlines()[0]}.",
        field="--jq",
        hint="It reads the envelope: try --jq .data.",
    )


def write(stream: TextIO, text: str) -> None:
    """Writes at once; a reader that has gone away is no error.

    Raises store.io for an answer that could not be written for another reason.
    """
    with _reporting(stream):
        stream.write(text)
        stream.flush()


def write_bytes(stream: TextIO, data: bytes) -> None:
    """Writes bytes at once; see `write`."""
    with _reporting(stream):
        stream.buffer.write(data)
        stream.flush()


@contextlib.contextmanager
def _reporting(stream: TextIO) -> Iterator[None]:
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
                hint="The request was carried out; only its answer is lost.",
            ) from None


class Output:
    """The json format, and the base of the other formats."""

    for_people = False

    def __init__(self, out: TextIO, err: TextIO, jq: Jq | None = None) -> None:
        self.out = out
        self.err = err
        self.jq = jq
        self.profile: str | None = None  # the profile in effect
        self.details = False  # true if a report lists successes, too
        self.follows: Method | None = None  # an endless method; only its items are printed

    def result(self, method: Method | None, params: dict[str, Any], result: dict[str, Any]) -> None:
        """Prints `result`, which is `{data, meta}`; `method` None: the shell's own answer."""
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
        """Prints an event of an endless stream; an envelope holds no events."""
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
        """Prints a plan before a person is asked to approve it."""
        self._line(self.err, {"type": "plan", "plan": plan})

    def note(self, message: str) -> None:
        self._line(self.err, {"type": "warning", "message": message})

    def logged(self, line: str, message: str) -> None:
        """Prints a line of the log; `message` is the line without its level."""
        write(self.err, line + "\n")

    def question(self, text: str) -> None:
        write(self.err, text)

    def progress(
        self,
        stage: str,
        current: int,
        total: int | None,
        message: str = "",
        eta_ms: int | None = None,
    ) -> None:
        """Shows the progress of the work, with the time that is left; only people see it."""

    def settled(self) -> None:
        """Ends the progress bars."""

    def _line(self, stream: TextIO, value: Any) -> None:
        write(stream, as_json(value).decode() + "\n")


class Ndjson(Output):
    """The ndjson format: one event a line; each item of a list is an event."""

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
