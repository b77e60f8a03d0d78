"""`kbproc mcp`, as it was typed: serving, `install CLIENT`, `uninstall`, `--print-config CLIENT`.

Owns: which of these is meant, checking flags before they are written, and asking before a
program's settings are changed.
Refuses to know: where programs keep their settings (clients.py), the command that they start
(chosen.py), and how flags are read.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbproc.base.errors import KbprocError
from kbproc.settings import config as settings
from kbproc.settings.config import Config

if TYPE_CHECKING:
    from kbproc.mcp.setup.clients import Change, Places

Given = Mapping[str, Sequence[str | bool]]  # flag → its values, in the order they came
Show = Callable[[str], object]


def run(
    config: Config,
    words: Sequence[str],
    flags: Given,
    pipes: tuple[int, int] | None,
    show: Show,
    *,
    agreed: bool,
) -> int:
    """`words`: `install CLIENT`, `uninstall CLIENT` or none; `pipes`: the protocol's, if they were
    claimed already. `agreed`: settings may be written. Returns the exit code; raises input.*,
    resource.not_found, store.*.
    """
    if words or "--print-config" in flags:
        return _configure(config, words, flags, show, agreed=agreed)
    from kbproc.base.pipes import claim
    from kbproc.mcp import serve

    last = {name: values[-1] for name, values in flags.items()}
    offering = serve.Offering(
        config=config,
        tools=_text(last.get("--tools")),
        root=_text(last.get("--root")),
        scopes=_text(last.get("--scopes")),
        allow_private_addresses=bool(last.get("--allow-private-addresses")),
    )
    return serve.run(offering, pipes or claim())


def _text(value: str | bool | None) -> str | None:
    return value if isinstance(value, str) else None


def _configure(
    config: Config, words: Sequence[str], flags: Given, show: Show, *, agreed: bool
) -> int:
    from kbproc.mcp.setup import clients  # serving needs none of it
    from kbproc.mcp.setup.chosen import chosen

    verb, client = _verb(words, flags)
    program, places = clients.find(client), _places()
    if verb == "uninstall":
        change = clients.removed(client, places)
        return _write(change, show, done="does not have it", agreed=agreed)
    _check(config, flags)
    plan = chosen(config, flags, places, is_project=program.is_project)
    if verb == "print":
        show(clients.printed(client, plan.server))
        sys.stderr.write("".join(f"{note}\n" for note in plan.notes))
        return 0
    change = clients.installed(client, plan.server, places)
    code = _write(change, show, done="has it already", agreed=agreed, notes=plan.notes)
    if program.next_step is not None:
        show(f"{program.next_step}\n")
    return code


def _verb(words: Sequence[str], flags: Given) -> tuple[str, str]:
    """Returns print, install or uninstall, and the client. Raises input.invalid_params."""
    if "--print-config" in flags and not words:
        return "print", str(flags["--print-config"][-1])
    if len(words) == 2 and words[0] in {"install", "uninstall"} and "--print-config" not in flags:
        return words[0], words[1]
    from kbproc.mcp.setup.names import NAMES

    raise KbprocError(
        "input.invalid_params",
        "mcp serves, or takes install CLIENT, uninstall CLIENT or --print-config CLIENT.",
        field="CLIENT",
        valid_values=list(NAMES),
    )


def _places() -> Places:
    from kbproc.mcp.setup.clients import Places

    env = settings.environment()
    return Places(
        home=Path.home(),
        settings=settings.profiles_file(env).parent.parent,
        project=Path.cwd(),
        variables=env,
    )


def _write(
    change: Change,
    show: Show,
    *,
    done: str,
    agreed: bool,
    notes: Sequence[str] = (),
) -> int:
    """Raises input.confirmation_required, store.io."""
    if change.is_done:
        show(f"{change.path} {done}.\n")
        return 0
    show("".join([change.shown(), *(f"{note}\n" for note in notes)]))
    if not agreed and not _agreed():
        raise KbprocError(
            "input.confirmation_required",
            f"Nothing was written to {change.path}.",
            hint="To write what is shown, add --yes to the same command.",
        )
    change.write()
    show(f"Written: {change.path}\n")
    return 0


def _agreed() -> bool:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    sys.stderr.write("Write this? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def _check(config: Config, flags: Given) -> None:
    """Raises what the server would refuse to start with, or what would make it useless."""
    from kbproc.base.paths import absolute
    from kbproc.mcp.toolbox import Toolbox
    from kbproc.sharing.serving import parse_scopes

    last = {name: _text(values[-1]) for name, values in flags.items()}
    if (tools := last.get("--tools")) is not None:
        Toolbox(tools)
    parse_scopes(last.get("--scopes"))
    root = last.get("--root")
    if root is not None and not absolute(root, field="--root").is_dir():
        raise KbprocError(
            "input.invalid_params", f"--root is {root!r}, which is no folder.", field="--root"
        )
    _check_names(config)


def _check_names(config: Config) -> None:
    """Raises resource.not_found for an agent or a knowledge base that the store does not have, and
    whatever keeps the store from being opened.
    """
    from kbproc.store.folder import is_store, require_store

    origin = config.origins.get("kb", settings.DEFAULT)
    names_kb = origin.level in {"flag", "environment"}
    if config.agent_named_by is not None:
        require_store(config.store, named="store" in config.origins)
    elif not names_kb or not is_store(config.store):
        return
    error = _asked(
        config, "kb.get" if names_kb else "ping", {"slug": config.kb} if names_kb else {}
    )
    if error.get("type", "auth.").startswith("auth."):  # the agent exists and may do little
        return
    from kbproc.sharing.reach import refusal

    field = str(error.get("field"))
    raise refusal({**error, "field": origin.name if field.startswith("$") else field})


def _asked(config: Config, name: str, params: dict[str, str]) -> dict[str, Any]:
    """Returns the error's data; {} for an answer."""
    from kbproc.base.host import Host
    from kbproc.methods.all import registry
    from kbproc.sharing.attached import Anywhere

    backend = Anywhere(config=config, registry=registry(), host=Host())
    try:
        response = backend.ask(name, params, lambda event: None)
    finally:
        backend.close()
    error: dict[str, Any] = response.get("error", {}).get("data", {})
    return error
