"""Reads the texts that a command line names: `-` for stdin, `@FILE` for a file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from kbproc.base import paths
from kbproc.base.errors import KbprocError
from kbproc.base.settings.config import MAX_LINE_BYTES
from kbproc.methods.calls.flags import Flag, unescaped


class Texts:
    """A reader of one command line's texts, which reads stdin at most once."""

    def __init__(self, read_stdin: Callable[[], bytes]) -> None:
        self._read_stdin = read_stdin
        self._stdin_for: str | None = None

    def of(self, word: str, flag: Flag) -> str:
        r"""Returns the text that `word` names; `\-` and `\@` begin a text with that character.

        Raises input.invalid_params, resource.not_found, input.too_large.
        """
        if word == "-":
            text = _decoded(self._stdin(flag.name), flag.name, "stdin")
        elif word.startswith("@"):
            text = _decoded(_file(word[1:], flag.name), flag.name, word[1:])
        else:
            return unescaped(word)
        return text if flag.is_long else text.removesuffix("\n").removesuffix("\r")

    def _stdin(self, flag: str) -> bytes:
        if self._stdin_for is not None:
            raise KbprocError(
                "input.invalid_params",
                f"Both {self._stdin_for} and {flag} are -, and stdin can be read only once.",
                field=flag,
                hint="Put one of the texts into a file, and name it with @FILE.",
            )
        self._stdin_for = flag
        return self._read_stdin()


def _file(name: str, flag: str) -> bytes:
    path = Path(os.path.expanduser(name))  # noqa: PTH111  never raises
    if not name or not path.exists():
        raise KbprocError(
            "resource.not_found",
            f"{flag} names the file {name!r}, which is not there.",
            field=flag,
            hint=f"For a text that begins with @, write '\\@{name}'.",
        )
    if not path.is_file():
        raise KbprocError("input.invalid_params", f"{name} is no regular file.", field=flag)
    try:
        return paths.read_file(path, MAX_LINE_BYTES)
    except KbprocError as error:
        kind = "input.too_large" if error.type == "input.too_large" else "input.invalid_params"
        raise KbprocError(kind, error.message, field=flag) from None


def _decoded(data: bytes, flag: str, source: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise KbprocError(
            "input.invalid_params",
            f"{source} is not UTF-8: byte {error.start} is 0x{data[error.start]:02x}.",
            field=flag,
            hint="For a PDF or another file of no plain text use kbproc doc ingest FILE.",
        ) from None
