"""Copies the skill that tells an agent when and how to use kbproc to where clients look for skills.

The skill comes with kbproc: in a wheel inside the package, else in the folder plugin/ beside it.
"""

from __future__ import annotations

from pathlib import Path

from kbproc.base.bundled import bundled
from kbproc.base.clients import BY_NAME, SHARED_SKILLS, SKILLS, Client, Places
from kbproc.base.errors import KbprocError
from kbproc.surfaces.setup.change import Change, text_of, unknown_client

_SKILL = Path("skills") / "kbproc" / "SKILL.md"


def text() -> str:
    """Returns the skill's text. Raises resource.not_found."""
    if (file := bundled(f"plugin/{_SKILL}")) is not None:
        return file.read_text(encoding="utf-8")
    raise KbprocError(
        "resource.not_found",
        "This installation holds no skill.",
        hint="Install kbproc from its wheel.",
    )


def installed(client: str | None, places: Places) -> Change:
    """Returns the change that writes the skill for a client, or for several where it is None.

    Raises input.invalid_params, store.io.
    """
    if client is not None and client not in SKILLS:
        message = f"The folder of skills of a client {client!r} is not known."
        hint = (
            f"Without CLIENT the skill is written to {SHARED_SKILLS}, where several clients look."
        )
        raise unknown_client(client, SKILLS, message=message, hint=hint)
    if client is None:
        folder = Client(name="", title="").path(SHARED_SKILLS, places)
    else:
        folder = BY_NAME[client].path(SKILLS[client], places)
    path = folder / "kbproc" / "SKILL.md"
    try:
        before = text_of(path)
    except ValueError as error:
        raise KbprocError("store.io", f"{path} can't be read: {error}.") from None
    return Change(path=path, before=before, after=text())
