"""Runs `kbproc hook install CLIENT` and `remove CLIENT`, and `kbproc skills install [CLIENT]`."""

from __future__ import annotations

from collections.abc import Sequence

from kbproc.base.errors import KbprocError
from kbproc.surfaces.hooks import install, skills
from kbproc.surfaces.hooks.install import Flags
from kbproc.surfaces.hooks.protocol import NAMES
from kbproc.surfaces.mcp.setup.run import Show, places_here, write_change


def hook(words: Sequence[str], flags: Flags, show: Show, *, agreed: bool) -> int:
    """Returns the exit code. Raises input.*, store.io.

    `agreed`: settings may be written without a question.
    """
    if len(words) != 2 or words[0] not in {"install", "remove"}:
        raise KbprocError(
            "input.invalid_params",
            "hook takes install CLIENT or remove CLIENT, or is started by a client with an event.",
            field="EVENT",
            valid_values=["install", "remove", *NAMES],
            hint="A client writes the event as JSON on stdin: kbproc docs hooks shows it.",
        )
    verb, client = words
    places = places_here()
    if verb == "remove":
        return write_change(
            lambda: install.removed(client, places),
            show,
            done="does not have the hooks",
            agreed=agreed,
        )
    code = write_change(
        lambda: install.installed(client, flags, places),
        show,
        done="has the hooks already",
        agreed=agreed,
    )
    if (next_step := install.find(client).next_step) is not None:
        show(f"{next_step}\n")
    return code


def install_skill(words: Sequence[str], show: Show, *, agreed: bool) -> int:
    """Returns the exit code. Raises input.*, store.io."""
    if len(words) > 1:
        raise KbprocError(
            "input.invalid_params",
            f"skills install takes [CLIENT]; {words[1]!r} is one too many.",
            field="CLIENT",
            valid_values=list(skills.NAMES),
        )
    client, places = words[0] if words else None, places_here()
    return write_change(
        lambda: skills.installed(client, places), show, done="has the skill already", agreed=agreed
    )
