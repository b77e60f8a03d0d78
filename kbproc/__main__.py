"""Where every kbproc process begins and ends.

It keeps what the process writes to its user, imports no more than is needed, claims the wire's
pipes before anything heavy is imported, and tries the fast path of a call.
"""

from __future__ import annotations

import os
import sys

from kbproc.base.garbage import wait_with_garbage
from kbproc.base.pipes import claim, complete, leave
from kbproc.base.spared import import_lean


def main() -> None:
    """The `kbproc` command."""
    if sys.platform == "win32":  # Python lacks modules there that kbproc imports.
        sys.stderr.write(
            "Error: kbproc runs on Linux and macOS, not on Windows.\n"
            "Hint: Run it inside WSL: `wsl --install`, then install kbproc there.\n"
        )
        sys.exit(2)
    try:
        _main()
    except ModuleNotFoundError as error:
        leave(_half_installed(error, sys.argv[1:]))


def _half_installed(error: ModuleNotFoundError, argv: list[str]) -> int:
    """Tells which library is missing; returns the exit code. Raises an error of kbproc's own."""
    import kbproc
    from kbproc.base import libraries

    if not libraries.is_lack(error):
        raise error
    if argv[:1] in (["version"], ["--version"]):
        sys.stdout.write(f"kbproc {kbproc.__version__}\n")
    sentence, command = libraries.advice(error)
    sys.stderr.write(f"Error: {sentence}\nHint: {command}\n")
    return 2


def _main() -> None:
    complete()
    if sys.argv[1:2] == ["hook"]:
        from kbproc.surfaces.hooks import run as hooks

        if hooks.is_event(sys.argv[1:]):
            os.umask(0o077)
            hooks.run(sys.argv[1:])
    wait_with_garbage()
    import_lean()
    argv = sys.argv[1:]
    os.umask(0o077)  # libraries that write views ask for no mode
    pipes = None
    if argv[:1] == ["call"] and sys.platform in {"linux", "darwin"}:  # cli refuses the others
        from kbproc.surfaces.shell.fastpath import call

        code = call(argv)
        if code is not None:
            leave(code)
    if argv[:1] in (["serve"], ["mcp"]) and _serves(argv):
        pipes = claim()
    from kbproc.surfaces.shell.cli import main as run

    leave(run(argv, pipes=pipes))


def _serves(argv: list[str]) -> bool:
    """Whether stdout is a protocol's, and not for people."""
    named = {arg.partition("=")[0] for arg in argv}
    return not {"-h", "--help", "install", "uninstall", "--print-config"} & named


if __name__ == "__main__":
    main()
