"""Where every kbproc process begins and ends.

Owns: keeping what it writes to its user, importing no more than is needed, claiming the wire's
pipes before anything heavy is imported, trying the fast path of a call, and leaving.
Refuses to know: what the surfaces do.
"""

from __future__ import annotations

import gc
import os
import sys
from typing import Any

from kbproc.base.pipes import claim, complete, leave

# New objects until garbage is looked for, also later: a start makes none, and would spend 1.5 ms on
# looking.
_UNTIL_GARBAGE = 25_000


def main() -> None:
    """The `kbproc` command."""
    complete()
    gc.set_threshold(_UNTIL_GARBAGE)
    import_lean()
    argv = sys.argv[1:]
    os.umask(0o077)  # libraries that write views ask for no mode
    pipes = None
    if argv[:1] == ["call"] and sys.platform in {"linux", "darwin"}:  # cli refuses the others
        from kbproc.shell.fastpath import call

        code = call(argv)
        if code is not None:
            leave(code)
    if argv[:1] in (["serve"], ["mcp"]) and _serves(argv):
        pipes = claim()
    from kbproc.shell.cli import main as run

    leave(run(argv, pipes=pipes))


def import_lean() -> None:
    """Imports msgspec and pathlib as if there were no modules that they hardly ever use.

    `typing` has all that msgspec takes of typing_extensions, which brings `inspect`, `ast` and a
    dozen others; the other three are imported by whoever comes to use them. Together that is a
    third of the time to a first line.
    """
    spared = {name: module for name, module in _SPARED.items() if name not in sys.modules}
    sys.modules.update(spared)  # type: ignore[arg-type]
    try:
        import pathlib  # noqa: F401

        import msgspec  # noqa: F401
    finally:
        for name in spared:
            del sys.modules[name]


def _quoted(data: bytes) -> str:
    from urllib.parse import quote_from_bytes

    return quote_from_bytes(data)


class _Later:
    """Stands for a module that is imported when more than is `known` is asked of it."""

    def __init__(self, module: str, **known: object) -> None:
        self._module = module
        vars(self).update(known)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # the import itself asks
            raise AttributeError(name)
        return getattr(__import__(self._module, fromlist=[name]), name)


_SPARED = {
    "typing_extensions": None,
    "platform": _Later("platform", system=lambda: os.uname().sysname),  # uuid asks
    "textwrap": _Later("textwrap"),
    "urllib.parse": _Later("urllib.parse", quote_from_bytes=_quoted),  # pathlib, for a URI
}


def _serves(argv: list[str]) -> bool:
    """Whether stdout is a protocol's, and not for people."""
    named = {arg.partition("=")[0] for arg in argv}
    return not {"-h", "--help", "install", "uninstall", "--print-config"} & named


if __name__ == "__main__":
    main()
