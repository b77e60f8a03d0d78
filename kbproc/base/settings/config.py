"""Loads a person's settings and the standard folders.

The precedence is flag > environment > linked folder > profile > default. Platforms that kbproc does
not run on are refused.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, field

from kbproc.base.errors import KbprocError
from kbproc.base.host import user_folder
from kbproc.base.paths import absolute, working_folder
from kbproc.base.settings import profiles, trust
from kbproc.base.settings.profiles import Link, Profiles
from kbproc.base.settings.trust import Trust

DEFAULT_KB = "default"

DEFAULT_ACTOR = "user"
MAX_LINE_BYTES = 16 << 20
MAX_IN_FLIGHT = 64
MAX_ID = 256  # characters of a request's id; a request with a longer one is refused without an id
MAX_BATCH = 1000
LOG_LEVELS = profiles.CHOICES["log_level"]
FORMATS = ("json", "ndjson", "text")


# Permissions of a client; a test compares them with the methods' scopes.
SCOPES = (
    "admin",
    "agent:read",
    "agent:write",
    "chunk:read",
    "doc:read",
    "doc:write",
    "kb:read",
    "kb:write",
    "knowledge:read",
    "knowledge:write",
    "knowledge:write_others",
    "note:read",
    "note:write",
    "review:write",
    "session:read",
    "session:write",
    "store:read",
)
# Features of this version, for `init` and `describe`.
CAPABILITIES: dict[str, Any] = {
    "batch": True,
    "cancel": True,
    "streams": True,
    "dry_run": True,
    "confirm": True,
    "client_token": True,
    "modes": ["hybrid", "fts", "vector"],
    "fusion": ["blend", "rrf", "rerank"],
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
        Variable("KBPROC_KB", "knowledge base that additions go to when none is named"),
        Variable("KBPROC_PROFILE", "the profile whose settings are meant"),
        Variable("KBPROC_FORMAT", "output of the commands: json, ndjson or text"),
        Variable("KBPROC_LOG_LEVEL", "debug, info, warning or error"),
        Variable("KBPROC_AGENT", "the agent that acts, and that the log names as the author"),
        Variable("KBPROC_AGENT_HELP", "1: --help prints JSON"),
        Variable("KBPROC_MODEL_API_KEY", "the key that an embedding model's endpoint wants"),
        Variable("KBPROC_LLM_URL", "the OpenAI-compatible endpoint that answers questions"),
        Variable("KBPROC_LLM_MODEL", "the model that it is asked for"),
        Variable("KBPROC_LLM_API_KEY", "the key that it wants"),
        Variable("KBPROC_LLM_API_KEY_FILE", "a file of mode 0600 that holds the key"),
        Variable("KBPROC_RERANK_FOLDER", "the folder of the cross-encoder that fusion rerank asks"),
        Variable("KBPROC_RERANK_URL", "or the endpoint (POST …/rerank) that it asks"),
        Variable("KBPROC_RERANK_MODEL", "the model that the endpoint is asked for"),
        Variable("KBPROC_RERANK_API_KEY", "the key that it wants"),
        Variable("KBPROC_RERANK_API_KEY_FILE", "a file of mode 0600 that holds the key"),
    )
}


# Setting → the variable that sets it.
ENVIRONMENT = {
    "store": "KBPROC_STORE",
    "kb": "KBPROC_KB",
    "format": "KBPROC_FORMAT",
    "agent": "KBPROC_AGENT",
    "log_level": "KBPROC_LOG_LEVEL",
}


class Llm(Struct, frozen=True, kw_only=True):
    """The LLM endpoint of the environment; for a member that is None the store's setting holds."""

    url: str | None = None
    model: str | None = None
    api_key: str | None = None
    api_key_file: str | None = None

    def __repr__(self) -> str:
        return f"Llm(model={self.model!r})"


class Rerank(Struct, frozen=True, kw_only=True):
    """The cross-encoder of the environment; for a member that is None the store's setting holds."""

    url: str | None = None
    model: str | None = None
    folder: str | None = None
    api_key: str | None = None
    api_key_file: str | None = None

    def __repr__(self) -> str:
        return f"Rerank(model={self.model!r}, folder={self.folder!r})"


class SettingOrigin(Struct, frozen=True):
    """The origin of a setting: a flag's or variable's name, a link's path or a profile's name."""

    level: Literal["flag", "environment", "link", "profile", "default"]
    name: str | None = None

    @property
    def shown(self) -> str:
        """Returns the origin in words: KBPROC_AGENT, profile work."""
        return f"{self.level} {self.name}" if self.level in {"link", "profile"} else f"{self.name}"


DEFAULT = SettingOrigin("default")
_PATHS = ("api_key_file", "folder")


def _own_runtime() -> Path:
    uid = os.getuid() if hasattr(os, "getuid") else 0  # Windows is refused later with an error
    return Path(f"/tmp/kbproc-{uid}")  # noqa: S108


class Config(Struct, frozen=True, kw_only=True):
    """All settings before flags, which override them field by field.

    Paths are absolute. `profile`: the one in effect, of `profile_names`. `notes`: sentences about
    links that were passed over. `origins`: setting → its origin, absent for a default. `approved`:
    the file of the user's approvals. `agent_named_by`: the origin of the agent's name; None where
    `actor` is no agent.
    """

    store: Path
    cache: Path
    runtime: Path = field(default_factory=_own_runtime)
    kb: str = DEFAULT_KB
    actor: str = DEFAULT_ACTOR
    format: str | None = None
    log_level: str = "warning"
    agent_help: bool = False
    color: bool = True
    agent_named_by: str | None = None
    profile: str | None = None
    profile_names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    approved: Path | None = None
    llm: Llm = Llm()
    rerank: Rerank = Rerank()
    origins: dict[str, SettingOrigin] = {}


def load(
    env: Mapping[str, str],
    *,
    folder: Path | None = None,
    profile: str | None = None,
    lenient: bool = False,
) -> Config:
    """Loads the settings; the search for a link begins at `folder`, by default the working folder.

    `profile`: the one that a flag names. `lenient`: a missing profile that no flag names is no
    error, for the commands that make profiles or need none.

    Raises input.invalid_params for an invalid variable, and for a broken file with its path and
    line; profile.not_found; store.io.
    """
    saved = profiles.read(profiles_file(env))
    name, chosen = _chosen(saved, profile, env, lenient)
    link, notes = profiles.find_link(folder or working_folder(), trust_of(env))
    values, origins = _settled(env, link, name, {} if name is None else saved.named[name])
    format = values.get("format")
    return Config(
        store=_store(env, values.get("store"), origins.get("store", DEFAULT)),
        cache=user_folder("CACHE", env) / "kbproc",
        runtime=_runtime(env),
        kb=values.get("kb", DEFAULT_KB),
        actor=values.get("agent", DEFAULT_ACTOR),
        agent_named_by=origins["agent"].shown if "agent" in origins else None,
        format=None if format is None else parse_format(format, field="KBPROC_FORMAT"),
        log_level=parse_log_level(values.get("log_level", "warning")),
        agent_help=_agent_help(env),
        color=_color(env),
        profile=name,
        profile_names=tuple(saved.named),
        notes=notes,
        approved=approvals_file(env),
        llm=Llm(**_endpoint(env, "LLM", Llm.__struct_fields__)),
        rerank=Rerank(**_endpoint(env, "RERANK", Rerank.__struct_fields__)),
        origins={**origins, "profile": chosen},
    )


def bare(env: Mapping[str, str]) -> Config:
    """Returns the defaults, for commands that need no settings when those can't be read."""
    return Config(
        store=user_folder("DATA", env) / "kbproc",
        cache=user_folder("CACHE", env) / "kbproc",
        runtime=_runtime(env),
        approved=approvals_file(env),
        agent_help=_agent_help(env),
        color=_color(env),
    )


def _store(env: Mapping[str, str], named: str | None, origin: SettingOrigin) -> Path:
    """Returns the store's path, absolute, since processes in other folders get it, too. Raises
    input.invalid_params.
    """
    if named is None:
        return user_folder("DATA", env) / "kbproc"
    return absolute(named, field=origin.name or "store")


def _endpoint(env: Mapping[str, str], kind: str, members: tuple[str, ...]) -> dict[str, str | None]:
    """Returns the values of one kind's variables, with absolute paths; ~ stays as it is."""
    values: dict[str, str | None] = {}
    for name in members:
        variable = f"KBPROC_{kind}_{name.upper()}"
        value = env.get(variable) or None
        if value is not None and name in _PATHS and not value.startswith("~"):
            value = str(absolute(value, field=variable))
        values[name] = value
    return values


def _color(env: Mapping[str, str]) -> bool:
    return "NO_COLOR" not in env and env.get("TERM") != "dumb"


def _agent_help(env: Mapping[str, str]) -> bool:
    return env.get("KBPROC_AGENT_HELP", "") not in {"", "0"}


def profiles_file(env: Mapping[str, str]) -> Path:
    return user_folder("CONFIG", env) / "kbproc" / profiles.FILE


def trust_of(env: Mapping[str, str]) -> Trust:
    return Trust(approvals_file(env))


def approvals_file(env: Mapping[str, str]) -> Path:
    """Returns the file of the user's approvals, beside the profiles."""
    return profiles_file(env).with_name(trust.FILE)


def _chosen(
    saved: Profiles, flag: str | None, env: Mapping[str, str], lenient: bool
) -> tuple[str | None, SettingOrigin]:
    """Returns the profile in effect and its origin. Raises profile.not_found."""
    if flag is not None:
        saved.get(flag, field="--profile")
        return flag, SettingOrigin("flag", "--profile")
    variable = env.get("KBPROC_PROFILE")
    name = variable or saved.use
    if name is None or (lenient and name not in saved.named):
        return None, DEFAULT
    saved.get(name, field="KBPROC_PROFILE" if variable else "use")
    return name, SettingOrigin("environment", "KBPROC_PROFILE") if variable else SettingOrigin(
        "profile", name
    )


def _settled(
    env: Mapping[str, str], link: Link | None, name: str | None, profile: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, SettingOrigin]]:
    """Returns each setting from environment, link or profile, the first that has it."""
    values: dict[str, str] = {}
    origins: dict[str, SettingOrigin] = {}
    linked = {} if link is None else link.settings
    for key, variable in ENVIRONMENT.items():
        for value, origin in (
            (env.get(variable), SettingOrigin("environment", variable)),
            (linked.get(key), SettingOrigin("link", None if link is None else str(link.path))),
            (profile.get(key), SettingOrigin("profile", name)),
        ):
            if value:
                values[key], origins[key] = value, origin
                break
    return values, origins


def _runtime(env: Mapping[str, str]) -> Path:
    """Returns the folder for sockets whose store can't hold them."""
    if folder := env.get("XDG_RUNTIME_DIR"):
        return absolute(folder, field="XDG_RUNTIME_DIR") / "kbproc"
    return _own_runtime()


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
    """Raises store.incompatible on platforms whose locks and sockets don't work as kbproc needs."""
    if platform not in {"linux", "darwin"}:
        raise KbprocError(
            "store.incompatible",
            f"kbproc runs on Linux and macOS, not on {platform}.",
            hint="On Windows, run it inside WSL.",
        )
