"""Runs `mcp install CLIENT`, `uninstall` and `--print-config`, `hook install CLIENT` and `remove`,
and `skills install [CLIENT]`.

Each returns the exit code. Flags are checked before they are written, and a person is asked before
a program's settings are changed; `agreed`: without a question.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from kbproc.base.clients import SERVERS, SKILLS, places_here
from kbproc.base.errors import KbprocError
from kbproc.base.settings import config as settings
from kbproc.base.settings.config import Config
from kbproc.surfaces.hooks.options import is_chosen
from kbproc.surfaces.hooks.protocol import NAMES
from kbproc.surfaces.setup import hooks, servers, skills
from kbproc.surfaces.setup.change import Flags, Show, write_change


def mcp(config: Config, words: Sequence[str], flags: Flags, show: Show, *, agreed: bool) -> int:
    """Installs, uninstalls or prints the server. Raises input.*, resource.not_found, store.*.

    `flags`: of the server, as they were typed.
    """
    verb, name = _verb(words, flags)
    client, places = servers.find(name), places_here()
    if verb == "uninstall":
        return write_change(
            lambda: servers.removed(name, places), show, done="does not have it", agreed=agreed
        )
    _check(config, flags)
    plan = servers.planned(config, flags, places, is_project=client.is_project)
    if verb == "print":
        show(servers.printed(name, plan.server))
        sys.stderr.write("".join(f"{note}\n" for note in plan.notes))
        return 0
    code = write_change(
        lambda: servers.installed(name, plan.server, places),
        show,
        done="has it already",
        agreed=agreed,
        notes=plan.notes,
    )
    if client.next_step is not None:
        show(f"{client.next_step}\n")
    return code


def hook(config: Config, words: Sequence[str], flags: Flags, show: Show, *, agreed: bool) -> int:
    """Installs or removes the hooks. Raises input.*, store.io.

    An installation names what the hooks still need in the working folder, where they would be
    silent.
    """
    if len(words) != 2 or words[0] not in {"install", "remove"}:
        raise KbprocError(
            "input.invalid_params",
            "hook takes install CLIENT, remove CLIENT, report or forget, or is started by a client "
            "with an event.",
            field="EVENT",
            valid_values=["install", "remove", "report", "forget", *NAMES],
            hint="A client writes the event as JSON on stdin: kbproc docs hooks shows it.",
        )
    verb, name = words
    places = places_here()
    if verb == "remove":
        return write_change(
            lambda: hooks.removed(name, places),
            show,
            done="does not have the hooks",
            agreed=agreed,
        )
    code = write_change(
        lambda: hooks.installed(name, flags, places),
        show,
        done="has the hooks already",
        agreed=agreed,
    )
    for next_step in (hooks.find(name).next_step, _needed(config)):
        if next_step is not None:
            show(f"{next_step}\n")
    return code


def _needed(config: Config) -> str | None:
    """Returns what makes the hooks speak in the working folder; None where they do."""
    if config.notes:
        return (
            "The hooks say nothing in this folder, because its link was passed over; "
            "kbproc link --trust approves it."
        )
    if is_chosen(config):
        return None
    return (
        "The hooks say nothing in this folder yet, because they speak only where a link says which "
        "store is meant: kbproc link --create."
    )


def skill(words: Sequence[str], show: Show, *, agreed: bool) -> int:
    """Installs the skill. Raises input.*, store.io."""
    if len(words) > 1:
        raise KbprocError(
            "input.invalid_params",
            f"skills install takes [CLIENT]; {words[1]!r} is one too many.",
            field="CLIENT",
            valid_values=list(SKILLS),
        )
    name, places = words[0] if words else None, places_here()
    return write_change(
        lambda: skills.installed(name, places), show, done="has the skill already", agreed=agreed
    )


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
        valid_values=list(SERVERS),
    )


def _check(config: Config, flags: Flags) -> None:
    """Checks the flags, so that the server will start. Raises the errors of its start."""
    from kbproc.base.paths import absolute
    from kbproc.surfaces.mcp.toolbox import Toolbox
    from kbproc.surfaces.sharing.serve import parse_scopes

    last = {name: str(values[-1]) for name, values in flags.items()}
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
    from kbproc.surfaces.sharing.command import result_of

    try:
        result_of(config, "kb.get" if names_kb else "ping", {"slug": config.kb} if names_kb else {})
    except KbprocError as error:
        if error.type.startswith("auth."):  # because the agent exists, with few scopes
            return
        if error.field is not None and error.field.startswith("$"):
            error.field = origin.name
        raise
