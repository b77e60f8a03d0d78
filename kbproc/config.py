"""Where things are and what was chosen.

Owns: the only reading of the environment; the precedence explicit >
environment > default; the standard folders; refusing platforms that kbproc
does not run on.
Refuses to know: what a store holds.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from kbproc.errors import KbprocError
from kbproc.model import DEFAULT_KB

DEFAULT_ACTOR = "user"
MAX_LINE_BYTES = 16 << 20
MAX_IN_FLIGHT = 64
MAX_ID = 256  # characters of a request's id; a longer one is refused under no id
LOG_LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("json", "ndjson", "text")


# What a client may be allowed to do; a test holds it against the methods.
SCOPES = ("admin", "chunk:read", "doc:read", "doc:write", "kb:read", "kb:write", "store:read")
# What this version can do, for `init` and `describe`.
CAPABILITIES: dict[str, Any] = {
    "batch": True,
    "cancel": True,
    "streams": True,
    "dry_run": True,
    "confirm": True,
    "client_token": True,
    "modes": ["hybrid", "fts", "vector"],
    "fusion": ["blend", "rrf"],
    "max_line_bytes": MAX_LINE_BYTES,
    "max_in_flight": MAX_IN_FLIGHT,
}


class Variable(Struct, frozen=True):
    """An environment variable that kbproc reads."""

    name: str
    meaning: str


VARIABLES = {
    row.name: row
    for row in (
        Variable("KBPROC_STORE", "folder of the store"),
        Variable("KBPROC_KB", "knowledge base that is meant when none is named"),
        Variable("KBPROC_FORMAT", "output of the commands: json, ndjson or text"),
        Variable("KBPROC_LOG_LEVEL", "debug, info, warning or error"),
        Variable("KBPROC_AGENT", "the actor that events are attributed to"),
        Variable("KBPROC_AGENT_HELP", "1: --help prints JSON"),
    )
}


class Config(Struct, frozen=True, kw_only=True):
    """What the environment says; flags override it field by field."""

    store: Path
    cache: Path
    runtime: Path = Path(f"/tmp/kbproc-{os.getuid()}")  # noqa: S108
    kb: str = DEFAULT_KB
    actor: str = DEFAULT_ACTOR
    format: str | None = None
    log_level: str = "warning"
    agent_help: bool = False
    color: bool = True


def environment() -> Mapping[str, str]:
    return os.environ


def load(env: Mapping[str, str]) -> Config:
    """Raises input.invalid_params for a variable with a value it can't have."""
    home = Path(env.get("HOME") or Path.home())
    data = Path(env.get("XDG_DATA_HOME") or home / ".local" / "share")
    cache = Path(env.get("XDG_CACHE_HOME") or home / ".cache")
    format = env.get("KBPROC_FORMAT") or None
    return Config(
        store=Path(env.get("KBPROC_STORE") or data / "kbproc").expanduser(),
        cache=cache / "kbproc",
        runtime=_runtime(env),
        kb=env.get("KBPROC_KB") or DEFAULT_KB,
        actor=env.get("KBPROC_AGENT") or DEFAULT_ACTOR,
        format=None if format is None else parse_format(format, field="KBPROC_FORMAT"),
        log_level=parse_log_level(env.get("KBPROC_LOG_LEVEL") or "warning"),
        agent_help=env.get("KBPROC_AGENT_HELP", "") not in {"", "0"},
        color="NO_COLOR" not in env,
    )


def _runtime(env: Mapping[str, str]) -> Path:
    """Where sockets lie that can't lie in their store."""
    if given := env.get("XDG_RUNTIME_DIR"):
        return Path(given) / "kbproc"
    return Path(f"/tmp/kbproc-{os.getuid()}")  # noqa: S108


def parse_format(value: str, *, field: str = "--format") -> str:
    value = "text" if value == "human" else value
    return _one_of(value, FORMATS, field)


def parse_log_level(value: str, *, field: str = "KBPROC_LOG_LEVEL") -> str:
    return _one_of(value.lower(), LOG_LEVELS, field)


def _one_of(value: str, valid: tuple[str, ...], field: str) -> str:
    if value not in valid:
        raise KbprocError(
            "input.invalid_params",
            f"{field} is {value!r}; it can be {', '.join(valid)}.",
            field=field,
            valid_values=valid,
        )
    return value


def check_platform(platform: str = sys.platform) -> None:
    """Raises store.incompatible where locks and sockets don't work as kbproc needs them."""
    if platform not in {"linux", "darwin"}:
        raise KbprocError(
            "store.incompatible",
            f"kbproc runs on Linux and macOS, not on {platform}.",
            hint="On Windows, run it inside WSL.",
        )
