"""Carries what a hook's child process does, and its answer, to its parent over a pipe."""

from __future__ import annotations

from typing import NamedTuple


class HookReport(NamedTuple):
    """The lines that the child has sent; `answer` is None until it is whole.

    If no answer comes in time, the parent prints `delay`, once in this `session`, or `silence`.
    """

    store: str | None
    stage: str
    answer: bytes | None
    session: str | None = None
    delay: str | None = None
    silence: str = ""


def report_line(kind: str, text: str) -> bytes:
    """Returns a line for the parent: a member of `HookReport`, and its text."""
    return f"{kind} {text.encode('utf-8', 'surrogateescape').hex()}\n".encode()


def answer_lines(answer: bytes) -> bytes:
    """Returns the last lines for the parent: the answer's length, and the answer."""
    return b"answer %d\n%s" % (len(answer), answer)


def read_report(data: bytes) -> HookReport:
    """Returns what the lines say; a line that is not whole is left out."""
    lines: dict[str, str] = {}
    while b"\n" in data:
        line, _, data = data.partition(b"\n")
        kind, _, value = line.decode("ascii", "replace").partition(" ")
        if kind == "answer":
            is_whole = value.isdecimal() and len(data) == int(value)
            return _report(lines, data if is_whole else None)
        lines[kind] = bytes.fromhex(value).decode("utf-8", "surrogateescape")
    return _report(lines, None)


def _report(lines: dict[str, str], answer: bytes | None) -> HookReport:
    return HookReport(
        lines.get("store"),
        lines.get("stage", ""),
        answer,
        lines.get("session"),
        lines.get("delay"),
        lines.get("silence", ""),
    )
