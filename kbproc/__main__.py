"""Where every kbproc process begins.

Owns: claiming the wire's pipes before anything heavy is imported.
Refuses to know: what the surfaces do.
"""

from __future__ import annotations

import sys


def main() -> None:
    """The `kbproc` command."""
    argv = sys.argv[1:]
    pipes = None
    if "serve" in argv and not {"-h", "--help"} & set(argv):
        from kbproc.pipes import claim

        pipes = claim()
    from kbproc.cli import main as run

    sys.exit(run(argv, pipes=pipes))


if __name__ == "__main__":
    main()
