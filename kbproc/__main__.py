"""Where every kbproc process begins and ends.

Owns: keeping what it writes to its user, importing no more than is needed, claiming the wire's
pipes before anything heavy is imported, trying the fast path of a call, and leaving.
Refuses to know: what the surfaces do.
"""

from __future__ import annotations

import os
import sys

from kbproc.base.pipes import claim, complete, leave


def main() -> None:
    """The `kbproc` command."""
    complete()
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
    """Imports msgspec as if there were no typing_extensions: `typing` has all that it takes of it.

    That one brings `inspect`, `ast` and a dozen others: a third of what that import takes.
    """
    if "typing_extensions" in sys.modules:
        return
    sys.modules["typing_extensions"] = None  # type: ignore[assignment]
    try:
        import msgspec  # noqa: F401
    finally:
        del sys.modules["typing_extensions"]


def _serves(argv: list[str]) -> bool:
    """Whether stdout is a protocol's, and not for people."""
    named = {arg.partition("=")[0] for arg in argv}
    return not {"-h", "--help", "install", "--print-config"} & named


if __name__ == "__main__":
    main()
