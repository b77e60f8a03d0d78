"""Where things are and what was chosen.

Owns: the only reading of the environment; the precedence explicit >
environment > linked folder > profile > default; the standard folders; refusing
platforms that kbproc does not run on.
Refuses to know: what a store holds, and how profiles and links are kept.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, field

from kbproc.base.errors import KbprocError
from kbproc.base.paths import absolute
from kbproc.settings import profiles, trust
from kbproc.settings.profiles import Link, Profiles
from kbproc.settings.trust import Trust

DEFAULT_KB = "default"

DEFAULT_ACTOR = "user"
MAX_LINE_BYTES = 16 << 20
MAX_IN_FLIGHT = 64
MAX_ID = 256  # characters of a request's id; a longer one is refused under no id
MAX_BATCH = 1000
LOG_LEVELS = profiles.CHOICES["log_level"]
FORMATS = ("json", "ndjson", "text")


# What a client may be allowed to do; a test holds it against the methods.
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
    "session:read",
    "session:write",
    "store:read",
)
# What this version can do, for `init` and `describe`.
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


# Setting → the variable that settles it.
ENVIRONMENT = {
    "store": "KBPROC_STORE",
    "kb": "KBPROC_KB",
    "format": "KBPROC_FORMAT",
    "agent": "KBPROC_AGENT",
    "log_level": "KBPROC_LOG_LEVEL",
}


class Llm(Struct, frozen=True, kw_only=True):
    """What the environment says of the endpoint that answers; None leaves it to the store."""

    url: str | None = None
    model: str | None = None
    api_key: str | None = None
    api_key_file: str | None = None

    def __repr__(self) -> str:
        return f"Llm(model={self.model!r})"


class Rerank(Struct, frozen=True, kw_only=True):
    """The cross-encoder that the environment names; None leaves a member to the store."""

    url: str | None = None
    model: str | None = None
    folder: str | None = None
    api_key: str | None = None
    api_key_file: str | None = None

    def __repr__(self) -> str:
        return f"Rerank(model={self.model!r}, folder={self.folder!r})"


class Origin(Struct, frozen=True):
    """What settled a setting: a flag's or variable's name, a link's path, a profile's name."""

    level: Literal["flag", "environment", "link", "profile", "default"]
    name: str | None = None

    @property
    def shown(self) -> str:
        """KBPROC_AGENT, profile work."""
        return f"{self.level} {self.name}" if self.level in {"link", "profile"} else f"{self.name}"


DEFAULT = Origin("default")
_PATHS = ("api_key_file", "folder")


def _own_runtime() -> Path:
    uid = os.getuid() if hasattr(os, "getuid") else 0  # Windows is refused later, in words
    return Path(f"/tmp/kbproc-{uid}")  # noqa: S108


class Config(Struct, frozen=True, kw_only=True):
    """What is settled before flags, which override it field by field.

    Paths are absolute. `profile`: the one in effect, of `profile_names`. `notes`: links that
    were passed over, in words. `origins`: setting → what settled it, by default its default.
    `approved`: the file of what the user has approved.
    `agent_named_by`: what said which agent acts; None where `actor` is a mere name.
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
    origins: dict[str, Origin] = {}


def environment() -> Mapping[str, str]:
    return os.environ


def load(
    env: Mapping[str, str],
    *,
    folder: Path | None = None,
    profile: str | None = None,
    lenient: bool = False,
) -> Config:
    """`folder`: where the search for a link begins, by default the working directory.

    `profile`: the one that a flag names. `lenient`: another that does not exist is no
    error, for the commands that make profiles or need none.

    Raises input.invalid_params for a variable with a value it can't have, and for a
    broken file with its path and line; profile.not_found; store.io.
    """
    known = profiles.read(profiles_file(env))
    name, chosen = _chosen(known, profile, env, lenient)
    link, notes = profiles.find_link(folder or _working_folder(), trust_of(env))
    values, origins = _settled(env, link, name, {} if name is None else known.named[name])
    format = values.get("format")
    return Config(
        store=_store(env, values.get("store"), origins.get("store", DEFAULT)),
        cache=_base(env, "CACHE") / "kbproc",
        runtime=_runtime(env),
        kb=values.get("kb", DEFAULT_KB),
        actor=values.get("agent", DEFAULT_ACTOR),
        agent_named_by=origins["agent"].shown if "agent" in origins else None,
        format=None if format is None else parse_format(format, field="KBPROC_FORMAT"),
        log_level=parse_log_level(values.get("log_level", "warning")),
        agent_help=_agent_help(env),
        color=_color(env),
        profile=name,
        profile_names=tuple(known.named),
        notes=notes,
        approved=approvals_file(env),
        llm=Llm(**_endpoint(env, "LLM", Llm.__struct_fields__)),
        rerank=Rerank(**_endpoint(env, "RERANK", Rerank.__struct_fields__)),
        origins={**origins, "profile": chosen},
    )


def bare(env: Mapping[str, str]) -> Config:
    """The defaults, for the commands that need no settings while those can't be read."""
    return Config(
        store=_base(env, "DATA") / "kbproc",
        cache=_base(env, "CACHE") / "kbproc",
        runtime=_runtime(env),
        approved=approvals_file(env),
        agent_help=_agent_help(env),
        color=_color(env),
    )


def _store(env: Mapping[str, str], named: str | None, origin: Origin) -> Path:
    """Absolute: processes that work elsewhere get it, too. Raises input.invalid_params."""
    if named is None:
        return _base(env, "DATA") / "kbproc"
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


_BASES = {"DATA": ".local/share", "CACHE": ".cache", "CONFIG": ".config"}


def _base(env: Mapping[str, str], kind: str) -> Path:
    variable = f"XDG_{kind}_HOME"
    if base := env.get(variable):
        return absolute(base, field=variable)
    return absolute(env.get("HOME") or str(Path.home()), field="HOME") / _BASES[kind]


def profiles_file(env: Mapping[str, str]) -> Path:
    return _base(env, "CONFIG") / "kbproc" / profiles.FILE


def trust_of(env: Mapping[str, str]) -> Trust:
    return Trust(approvals_file(env))


def approvals_file(env: Mapping[str, str]) -> Path:
    """What the user has approved is kept beside the profiles."""
    return profiles_file(env).with_name(trust.FILE)


def _working_folder() -> Path:
    """One that has been removed lies under no link."""
    try:
        return Path.cwd()
    except OSError:
        return Path("/")


def _chosen(
    known: Profiles, flag: str | None, env: Mapping[str, str], lenient: bool
) -> tuple[str | None, Origin]:
    """The profile in effect and what chose it. Raises profile.not_found."""
    if flag is not None:
        known.get(flag, field="--profile")
        return flag, Origin("flag", "--profile")
    variable = env.get("KBPROC_PROFILE")
    name = variable or known.use
    if name is None or (lenient and name not in known.named):
        return None, DEFAULT
    known.get(name, field="KBPROC_PROFILE" if variable else "use")
    return name, Origin("environment", "KBPROC_PROFILE") if variable else Origin("profile", name)


def _settled(
    env: Mapping[str, str], link: Link | None, name: str | None, profile: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, Origin]]:
    """What environment, link and profile say, each setting by the first that has it."""
    values: dict[str, str] = {}
    origins: dict[str, Origin] = {}
    linked = {} if link is None else link.settings
    for key, variable in ENVIRONMENT.items():
        for value, origin in (
            (env.get(variable), Origin("environment", variable)),
            (linked.get(key), Origin("link", None if link is None else str(link.path))),
            (profile.get(key), Origin("profile", name)),
        ):
            if value:
                values[key], origins[key] = value, origin
                break
    return values, origins


def _runtime(env: Mapping[str, str]) -> Path:
    """Where sockets lie that can't lie in their store."""
    if given := env.get("XDG_RUNTIME_DIR"):
        return absolute(given, field="XDG_RUNTIME_DIR") / "kbproc"
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
    """Raises store.incompatible where locks and sockets don't work as kbproc needs them."""
    if platform not in {"linux", "darwin"}:
        raise KbprocError(
            "store.incompatible",
            f"kbproc runs on Linux and macOS, not on {platform}.",
            hint="On Windows, run it inside WSL.",
        )
