"""Runs `kbproc mcp`: serves, or `install CLIENT`, `uninstall`, `--print-config CLIENT`.

Flags are checked before they are written, and a person is asked before a program's settings are
changed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbproc.base.errors import KbprocError
from kbproc.base.host import environment
from kbproc.base.paths import working_folder
from kbproc.base.settings import config as settings
from kbproc.base.settings.config import Config

if TYPE_CHECKING:
    from kbproc.surfaces.mcp.setup.clients import Change, Places

# The clients whose settings can be changed; here, because flags and completion list them.
NAMES = ("claude-code", "codex", "cursor", "gemini", "opencode", "qwen", "vscode", "zed")
Flags = Mapping[str, Sequence[str | bool]]  # flag → its values, in their order
Show = Callable[[str], object]
_MOST_PLANS = 100


def run(
    config: Config,
    words: Sequence[str],
    flags: Flags,
    pipes: tuple[int, int] | None,
    show: Show,
    *,
    agreed: bool,
) -> int:
    """Returns the exit code. Raises input.*, resource.not_found, store.*.

    `words`: `install CLIENT`, `uninstall CLIENT` or none; `pipes`: the protocol's, if they are
    claimed already. `agreed`: settings may be written without a question.
    """
    if words or "--print-config" in flags:
        return _configure(config, words, flags, show, agreed=agreed)
    from kbproc.base.pipes import claim
    from kbproc.surfaces.mcp import serve

    last = {name: values[-1] for name, values in flags.items()}
    offering = serve.Offering(
        config=config,
        tools=_text(last.get("--tools")),
        root=_text(last.get("--root")),
        scopes=_text(last.get("--scopes")),
        allow_private_addresses=bool(last.get("--allow-private-addresses")),
        approve=_text(last.get("--approve")),
    )
    return serve.run(offering, pipes or claim())


def _text(value: str | bool | None) -> str | None:
    return value if isinstance(value, str) else None


def _configure(
    config: Config, words: Sequence[str], flags: Flags, show: Show, *, agreed: bool
) -> int:
    from kbproc.surfaces.mcp.setup import clients  # imported late, because serving does not need it

    verb, client = _verb(words, flags)
    program, places = clients.find(client), places_here()
    if verb == "uninstall":
        return write_change(
            lambda: clients.removed(client, places), show, done="does not have it", agreed=agreed
        )
    _check(config, flags)
    plan = clients.planned(config, flags, places, is_project=program.is_project)
    if verb == "print":
        show(clients.printed(client, plan.server))
        sys.stderr.write("".join(f"{note}\n" for note in plan.notes))
        return 0
    code = write_change(
        lambda: clients.installed(client, plan.server, places),
        show,
        done="has it already",
        agreed=agreed,
        notes=plan.notes,
    )
    if program.next_step is not None:
        show(f"{program.next_step}\n")
    return code


def _verb(words: Sequence[str], flags: Flags) -> tuple[str, str]:
    """Returns print, install or uninstall, and the client. Raises input.invalid_params."""
    if "--print-config" in flags and not words:
        return "print", str(flags["--print-config"][-1])
    if len(words) == 2 and words[0] in {"install", "uninstall"} and "--print-config" not in flags:
        return words[0], words[1]
    raise KbprocError(
        "input.invalid_params",
        "mcp serves, or takes install CLIENT, uninstall CLIENT or --print-config CLIENT.",
        field="CLIENT",
        valid_values=list(NAMES),
    )


def places_here() -> Places:
    from kbproc.surfaces.mcp.setup.clients import Places

    env = environment()
    return Places(
        home=Path.home(),
        settings=settings.profiles_file(env).parent.parent,
        project=working_folder(),
        variables=env,
    )


def write_change(
    plan: Callable[[], Change],
    show: Show,
    *,
    done: str,
    agreed: bool,
    notes: Sequence[str] = (),
) -> int:
    """Shows the change and writes it; a save of another program since the plan makes a new plan.

    Raises input.confirmation_required, store.io, and what `plan` raises.
    """
    for _ in range(_MOST_PLANS):
        change = plan()
        if change.is_done:
            show(f"{change.path} {done}.\n")
            return 0
        show("".join([change.shown(), *(f"{note}\n" for note in notes)]))
        if not agreed and not _person_agrees():
            raise KbprocError(
                "input.confirmation_required",
                f"Nothing was written to {change.path}.",
                hint="To write what is shown, add --yes to the same command.",
            )
        if change.write():
            show(f"{'Removed' if change.after is None else 'Written'}: {change.path}\n")
            return 0
        show(f"Another program has changed {change.path} meanwhile, so this is planned anew.\n")
    raise KbprocError(
        "store.io",
        f"Nothing was written to {change.path}, because another program keeps changing it.",
        hint="End that program, then repeat the command.",
    )


def _person_agrees() -> bool:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    sys.stderr.write("Write this? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def _check(config: Config, flags: Flags) -> None:
    """Checks the flags, so that the server will start. Raises the errors of its start."""
    from kbproc.base.paths import absolute
    from kbproc.surfaces.mcp.toolbox import Toolbox
    from kbproc.surfaces.sharing.serve import parse_scopes

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
    """Checks the agent and the knowledge base.

    Raises resource.not_found for one that the store does not have, and errors of opening the store.
    """
    from kbproc.engine.store.folder import is_store, require_store

    origin = config.origins.get("kb", settings.DEFAULT)
    names_kb = origin.level in {"flag", "environment"}
    if config.agent_named_by is not None:
        require_store(config.store, named="store" in config.origins)
    elif not names_kb or not is_store(config.store):
        return
    error = _error_of(
        config, "kb.get" if names_kb else "ping", {"slug": config.kb} if names_kb else {}
    )
    if error.get("type", "auth.").startswith("auth."):  # because the agent exists, with few scopes
        return
    from kbproc.surfaces.sharing.link import refusal

    field = str(error.get("field"))
    raise refusal({**error, "field": origin.name if field.startswith("$") else field})


def _error_of(config: Config, name: str, params: dict[str, str]) -> dict[str, Any]:
    """Returns the data of a method's error; {} without an error."""
    from kbproc.base.host import Host
    from kbproc.methods.all import registry
    from kbproc.surfaces.sharing.command import Command

    command = Command(config=config, registry=registry(), host=Host())
    try:
        response = command.ask(name, params, lambda event: None)
    finally:
        command.close()
    error: dict[str, Any] = response.get("error", {}).get("data", {})
    return error
