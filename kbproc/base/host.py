"""The process's surroundings: clocks, randomness, pid, folder and environment.

No other module calls the clock, randomness, the environment or the working directory, so that a
test can replace them.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from kbproc.base.paths import absolute, working_folder
from kbproc.base.times import rfc3339


def installs(extras: str, prefix: Path | None = None) -> str:
    """Returns the command that adds `extras` to kbproc's environment at `prefix`."""
    prefix = prefix or Path(sys.prefix)
    what = _requirement(extras)
    if (prefix / "pipx_metadata.json").exists():
        return f"pipx install --force {what}"
    if (prefix / "uv-receipt.toml").exists():
        return f"uv tool install {what}"
    if "archive-v0" in prefix.parts or "environments-v2" in prefix.parts:  # part of uv's cache
        return f"uvx --from {what} kbproc"
    return f"pip install {what}"


def _requirement(extras: str) -> str:
    """Returns kbproc with these extras, from its installed origin as PEP 610 records it.

    An index may lack kbproc, or have another package under its name.
    """
    import importlib.metadata
    import json
    import shlex
    from urllib.parse import unquote

    try:
        text = importlib.metadata.distribution("kbproc").read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        text = None
    origin = json.loads(text or "{}")
    url: str = origin.get("url", "")
    if url.startswith("file://"):
        option = "-e " if origin.get("dir_info", {}).get("editable") else ""
        return option + shlex.quote(f"{unquote(url.removeprefix('file://'))}[{extras}]")
    if url:
        vcs = origin.get("vcs_info", {}).get("vcs")
        return shlex.quote(f"kbproc[{extras}] @ {f'{vcs}+' if vcs else ''}{url}")
    return shlex.quote(f"kbproc[{extras}]")


_BASES = {"DATA": ".local/share", "CACHE": ".cache", "CONFIG": ".config"}


def environment() -> Mapping[str, str]:
    return os.environ


def user_folder(kind: str, env: Mapping[str, str] | None = None) -> Path:
    """Returns the folder of a user's data, caches or settings, by the XDG base directory
    specification.

    `kind`: DATA, CACHE or CONFIG. Raises input.invalid_params for a variable that holds no path.
    """
    env = environment() if env is None else env
    variable = f"XDG_{kind}_HOME"
    if base := env.get(variable):
        return absolute(base, field=variable)
    return absolute(env.get("HOME") or str(Path.home()), field="HOME") / _BASES[kind]


class Host:
    """The real surroundings."""

    def now_ms(self) -> int:
        """Returns milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def now(self) -> str:
        return rfc3339(self.now_ms())

    def monotonic_ms(self) -> float:
        """Returns milliseconds of a clock that never goes back."""
        return time.monotonic() * 1000

    def salt(self) -> str:
        """Returns 16 random bytes as hex."""
        return os.urandom(16).hex()

    def pid(self) -> int:
        return os.getpid()

    def machine(self) -> str:
        """Returns the machine's name, which may change."""
        return os.uname().nodename

    def cwd(self) -> Path:
        return working_folder()

    def database_size(self, measured: int) -> int:
        """Returns the database's bytes on disk for clients; a test fixes it, as sizes differ
        between runs.
        """
        return measured

    def versions(self, measured: dict[str, str]) -> dict[str, str]:
        """Returns the library versions for clients."""
        return measured


# Libraries read these when they are imported: no reports, no downloads.
ALONE = {
    "ORT_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "DO_NOT_TRACK": "1",
}


# The user's own values of them, which a command that asks the hub passes on.
_BEFORE = {name: os.environ[name] for name in ALONE if name in os.environ}


def stay_alone() -> None:
    """Sets the variables for the libraries that this process will import."""
    os.environ.update(ALONE)


def allow_the_hub() -> None:
    """Lets this process ask the model hub, which the import of a model forbids."""
    os.environ.update(HF_HUB_OFFLINE="0", TRANSFORMERS_OFFLINE="0")


def is_offline() -> bool:
    """Returns whether the user forbids requests to the model hub."""
    value = _BEFORE.get("HF_HUB_OFFLINE") or _BEFORE.get("TRANSFORMERS_OFFLINE") or ""
    return value.upper() in {"1", "ON", "YES", "TRUE"}
