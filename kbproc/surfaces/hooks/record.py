"""Records the session whose log an agent's client names, as a conversation of the store."""

from __future__ import annotations

from pathlib import Path

from kbproc.base.errors import KbprocError
from kbproc.base.settings.config import Config
from kbproc.engine.sources.parse.formats import detect
from kbproc.surfaces.hooks.asking import HookQuestion

# Requests for this need more than those that read.
SCOPES = ["doc:write", "kb:read"]
_HEAD_BYTES = 4096


def check(transcript: str) -> None:
    """Raises input.unsupported_type for a file that is no session log; OSError.

    A client's event names any file that it likes, and only conversations lose their secrets.
    """
    path = Path(transcript)
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    if detect(path.name, head) != "conversation":
        message = f"{path} was not recorded: it is no session log whose shape is known."
        raise KbprocError("input.unsupported_type", message)


def record(asking: HookQuestion, config: Config, transcript: str) -> None:
    """Adds the session, or its new revision. Raises the errors of doc.ingest."""
    asking.all([("doc.ingest", {"paths": [transcript], "kb": config.kb})])
