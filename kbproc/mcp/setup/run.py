"""`kbproc mcp`, as it was typed: serving, `install CLIENT`, `--print-config CLIENT`.

Owns: which of these is meant, the command that a program is to start, and asking before its
settings are changed.
Refuses to know: where programs keep their settings (clients.py), and how flags are read.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from kbproc.base.errors import KbprocError
from kbproc.base.paths import absolute
from kbproc.settings import config as settings
from kbproc.settings.config import Config

_OWN = frozenset({"--print-config", "--yes"})
Given = Mapping[str, Sequence[str | bool]]  # flag → its values, in the order they came


def run(
    config: Config,
    words: Sequence[str],
    given: Given,
    pipes: tuple[int, int] | None,
    show: Callable[[str], object],
    *,
    agreed: bool,
) -> int:
    """`words`: `install CLIENT` or none; `pipes`: the protocol's, if they were claimed already.
    `agreed`: settings may be written. Returns the exit code; raises input.*, store.io.
    """
    if words or "--print-config" in given:
        return _configure(words, given, show, agreed=agreed)
    from kbproc.base.pipes import claim
    from kbproc.mcp import serve

    said = {name: values[-1] for name, values in given.items()}
    offering = serve.Offering(
        config=config,
        tools=_text(said.get("--tools")),
        root=_text(said.get("--root")),
        scopes=_text(said.get("--scopes")),
        allow_private_addresses=bool(said.get("--allow-private-addresses")),
    )
    return serve.run(offering, pipes or claim())


def _text(value: str | bool | None) -> str | None:
    return value if isinstance(value, str) else None


def _configure(
    words: Sequence[str], given: Given, show: Callable[[str], object], *, agreed: bool
) -> int:
    from kbproc.mcp.setup import clients  # whoever serves needs none of it

    command = [*_program(), "mcp", *_flags(given)]
    if "--print-config" in given and not words:
        show(clients.printed(str(given["--print-config"][-1]), command))
        return 0
    if len(words) != 2 or words[0] != "install" or "--print-config" in given:
        raise KbprocError(
            "input.invalid_params",
            "mcp serves, or takes install CLIENT, or --print-config CLIENT.",
            field="CLIENT",
            valid_values=list(clients.CLIENTS),
        )
    places = clients.Places(
        home=Path.home(),
        settings=settings.profiles_file(settings.environment()).parent.parent,
        project=Path.cwd(),
    )
    change = clients.change(words[1], command, places)
    if change.is_done:
        show(f"{change.path} has it already.\n")
        return 0
    show(change.shown())
    if not agreed and not _agreed():
        raise KbprocError(
            "input.confirmation_required",
            f"Nothing was written to {change.path}.",
            hint=f"To write what is shown: kbproc mcp install {words[1]} --yes",
        )
    change.write()
    show(f"Written: {change.path}\n")
    return 0


def _program() -> list[str]:
    """Programs with windows have another PATH."""
    import shutil

    found = shutil.which("kbproc")
    return [found] if found else [sys.executable, "-m", "kbproc"]


def _flags(given: Given) -> list[str]:
    """Those of the server, as they were given."""
    said = []
    for name, values in given.items():
        if name not in _OWN:
            said += [part for value in values for part in _flag(name, value)]
    return said


def _flag(name: str, value: str | bool) -> list[str]:
    if isinstance(value, bool):
        return [name] if value else []
    is_path = name in {"--store", "--root"}
    return [name, str(absolute(value, field=name)) if is_path else value]


def _agreed() -> bool:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    sys.stderr.write("Write this? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}
