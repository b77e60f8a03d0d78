"""Runs commands in this process or on their own terminal."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import pty
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pytest

from kbproc.surfaces.shell.cli import main
from tests.kit.patience import PATIENCE
from tests.kit.start import REPO, start

SETTINGS = 'format = 2\n\n[model]\nkind = "hash"\nname = "hash"\n'
ANSI = re.compile(r"\x1b")

Run = Callable[..., tuple[int, str, str]]


def environment(folder: Path) -> dict[str, str]:
    store = folder / "store"
    store.mkdir(mode=0o700, exist_ok=True)
    if not (store / "store.toml").exists():
        (store / "store.toml").write_text(SETTINGS)
    return {
        "PYTHONPATH": str(REPO),
        "KBPROC_STORE": str(store),
        "HOME": str(folder),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "XDG_CONFIG_HOME": str(folder / ".config"),
        "COLUMNS": "80",
    }


class Ran(NamedTuple):
    """The end of a command: its exit code, and the text on both streams."""

    code: int
    out: str
    err: str


def run(argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], stdin: str | bytes = b"") -> Ran:
    """Runs `kbproc ARGV...` in this process, with these streams, folder and variables alone.

    It does what a new process does, without its start; two can't run at the same time.
    """
    data = stdin.encode() if isinstance(stdin, str) else stdin
    streams: dict[str, Any] = {"stdin": _stream(data), "stdout": _stream(), "stderr": _stream()}
    with (
        mock.patch.multiple(sys, **streams),
        mock.patch.dict(os.environ, env, clear=True),
        contextlib.chdir(cwd),
        _own_log(),
        _umask(0o077),
    ):
        code = main(list(argv))
    out, err = (_text(streams[name]) for name in ("stdout", "stderr"))
    return Ran(code, out, err)


def _stream(data: bytes = b"") -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(data), encoding="utf-8", write_through=True)


def _text(stream: io.TextIOWrapper) -> str:
    """Returns all that was written; bytes that are no UTF-8 become surrogates."""
    stream.flush()
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue().decode(errors="surrogateescape")


@contextlib.contextmanager
def _own_log() -> Iterator[None]:
    """Puts the handlers of the log back at the end, because a command replaces them."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)


@contextlib.contextmanager
def _umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def in_process(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    """Returns a function that runs a command here and returns exit code, stdout and stderr."""
    for name in [name for name in os.environ if name.startswith("KBPROC_")]:
        monkeypatch.delenv(name)
    for name, value in environment(folder).items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(folder)

    def command(*argv: str, stdin: bytes = b"") -> tuple[int, str, str]:
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
            code = main(list(argv))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return command


def refused(run: Run, *argv: str) -> dict[str, Any]:
    """Returns a command's error; asserts that the exit code matches and stdout is empty."""
    code, out, err = run(*argv)
    error: dict[str, Any] = json.loads(err)["error"]
    assert (out, error["exit_code"]) == ("", code)
    return error


def on_terminal(
    folder: Path,
    *argv: str,
    typed: str = "",
    env: dict[str, str] | None = None,
    once: tuple[str, Callable[[], str]] | None = None,
) -> tuple[int, str]:
    """Runs a command on its own terminal; `typed` is typed ahead.

    `once`: a text and a function. When the text appears, the function's result is typed.
    """
    master, slave = pty.openpty()
    surroundings = {
        "PATH": os.environ["PATH"],
        "TERM": "xterm",
        **environment(folder),
        **(env or {}),
    }
    process = start(
        ["-m", "kbproc", *argv],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=surroundings,
        cwd=folder,
        start_new_session=True,
    )
    os.close(slave)
    os.write(master, typed.encode())
    output = b""
    while block := _read(master):
        output += block
        if once is not None and once[0].encode() in output:
            os.write(master, once[1]().encode())
            once = None
    os.close(master)
    return process.wait(PATIENCE), output.decode().replace("\r\n", "\n")


def _read(master: int) -> bytes:
    try:
        return os.read(master, 4096)
    except OSError:  # Linux raises this when the other side has closed
        return b""


def write_docs(folder: Path) -> Path:
    docs = folder / "docs"
    docs.mkdir()
    (docs / "git-admin.md").write_text(
        "---\ntags: [git, admin]\n---\n# Git Admin Guide\n\nTo install the latest version of git "
        "from source, first get the tarball, unpack it and run make; then read the notes.\n"
    )
    (docs / "setup.md").write_text(
        "# Setup\n\n## Installation\n\nAdd the PPA repository for git.\n"
    )
    return docs
