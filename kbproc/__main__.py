"""Where every kbproc process begins and ends.

Owns: keeping what it writes to its user, claiming the wire's pipes before anything heavy is
imported, trying the fast path of a call, and leaving.
Refuses to know: what the surfaces do.
"""

from __future__ import annotations

import os
import sys

from kbproc.base.pipes import claim, complete, leave


def main() -> None:
    """The `kbproc` command."""
    complete()
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


def _serves(argv: list[str]) -> bool:
    """Whether stdout is a protocol's, and not for people."""
    named = {arg.partition("=")[0] for arg in argv}
    return not {"-h", "--help", "install", "--print-config"} & named


if __name__ == "__main__":
    main()
