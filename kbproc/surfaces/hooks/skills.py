"""Copies the skill that tells an agent when and how to use kbproc to where clients look for skills.

The skill comes with kbproc: in a wheel inside the package, else in the folder plugin/ beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kbproc.base.bundled import bundled
from kbproc.base.errors import KbprocError
from kbproc.base.suggest import closest, did_you_mean
from kbproc.surfaces.mcp.setup.clients import Change, Places, text_of

_SKILL = Path("skills") / "kbproc" / "SKILL.md"

# Client → the folder of a person's own skills; "" is where several clients look.
_FOLDERS: dict[str, Callable[[Places], Path]] = {
    "": lambda at: at.home / ".agents" / "skills",
    "claude-code": lambda at: at.named_by("CLAUDE_CONFIG_DIR", at.home / ".claude") / "skills",
    "codex": lambda at: at.home / ".agents" / "skills",
    "cursor": lambda at: at.home / ".cursor" / "skills",
    "gemini": lambda at: at.named_by("GEMINI_CLI_HOME", at.home) / ".gemini" / "skills",
    "opencode": lambda at: at.settings / "opencode" / "skills",
}
NAMES = tuple(filter(None, _FOLDERS))


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
    folder = _FOLDERS.get(client or "")
    if folder is None:
        raise KbprocError(
            "input.invalid_params",
            f"The folder of skills of a client {client!r} is not known.",
            field="CLIENT",
            valid_values=list(NAMES),
            hint=f"{did_you_mean(closest(client or '', NAMES))}Without CLIENT the skill is "
            "written to ~/.agents/skills, where several clients look.",
        )
    path = folder(places) / "kbproc" / "SKILL.md"
    try:
        before = text_of(path)
    except ValueError as error:
        raise KbprocError("store.io", f"{path} can't be read: {error}.") from None
    return Change(path=path, before=before, after=text())
