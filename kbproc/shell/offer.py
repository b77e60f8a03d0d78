"""`kbproc mcp`: serving, or telling the programs that start servers how.

Owns: which of the two is meant, the command that a program is to start, and asking before its
settings are changed.
Refuses to know: where programs keep their settings, and how the protocol is served.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from kbproc.base.errors import KbprocError
from kbproc.settings import config as settings
from kbproc.shell.arguments import Options, Parsed, usage_error

_OWN = frozenset({"--print-config", "--yes"})
_CLIENTS = "claude-code|codex|cursor|vscode|zed"


def serves(args: list[str]) -> bool:
    """Whether these arguments mean to serve, so that stdout is the protocol's."""
    named = {arg.partition("=")[0] for arg in args}
    return not {"install", "--print-config", "-h", "--help"} & named


def configure(parsed: Parsed, options: Options, show: Callable[[str], object]) -> int:
    """`--print-config CLIENT`, `install CLIENT`. Raises input.*, store.io."""
    from kbproc.mcp.setup import clients

    command = [*_program(), "mcp", *_flags(parsed)]
    if (name := parsed.last("--print-config")) is not None:
        if parsed.positionals:
            raise usage_error("Print or install: not both.", "--print-config")
        show(clients.printed(name, command))
        return 0
    if len(parsed.positionals) != 2 or parsed.positionals[0] != "install":
        raise usage_error(f"mcp install needs a CLIENT: {_CLIENTS}.", "CLIENT")
    places = clients.Places(
        home=Path.home(),
        settings=settings.profiles_file(settings.environment()).parent.parent,
        project=Path.cwd(),
    )
    change = clients.change(parsed.positionals[1], command, places)
    if change.is_done:
        show(f"{change.path} has it already.\n")
        return 0
    show(change.shown())
    if not options.yes and not _agreed():
        raise KbprocError(
            "input.confirmation_required",
            f"Nothing was written to {change.path}.",
            hint=f"To write what is shown: kbproc mcp install {parsed.positionals[1]} --yes",
        )
    change.write()
    show(f"Written: {change.path}\n")
    return 0


def _program() -> list[str]:
    """Programs with windows have another PATH."""
    found = shutil.which("kbproc")
    return [found] if found else [sys.executable, "-m", "kbproc"]


def _flags(parsed: Parsed) -> list[str]:
    """Those of the server, as they were given."""
    said = []
    for name, values in parsed.given.items():
        if name not in _OWN:
            said += [part for value in values for part in _flag(name, value)]
    return said


def _flag(name: str, value: str | bool) -> list[str]:
    if isinstance(value, bool):
        return [name] if value else []
    is_path = name in {"--store", "--root"}
    return [name, str(Path(value).expanduser().absolute()) if is_path else value]


def _agreed() -> bool:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    sys.stderr.write("Write this? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}
