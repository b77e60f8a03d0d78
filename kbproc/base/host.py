"""What the process takes from its surroundings: clocks, chance, pid, folder, environment.

Owns: the only calls to the clock, to randomness and to the working directory.
Refuses to know: what they are used for. Tests and golden transcripts pass a
`Host` of their own, and so their output is the same byte for byte.
"""

from __future__ import annotations

import functools
import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path


def rfc3339(epoch_ms: int) -> str:
    """UTC with milliseconds and `Z`: of fixed width, so text order is time order."""
    seconds, rest = divmod(epoch_ms, 1000)
    return f"{_second(seconds)}.{rest:03d}Z"


@functools.lru_cache(maxsize=64)
def _second(epoch_s: int) -> str:
    """Kept, since it takes ten times as long as all else that a request asks of the clock."""
    return datetime.fromtimestamp(epoch_s, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def installs(extras: str, prefix: Path | None = None) -> str:
    """The command that adds `extras` to the environment at `prefix`, where kbproc is."""
    prefix = prefix or Path(sys.prefix)
    what = f"'kbproc[{extras}]'"
    if (prefix / "pipx_metadata.json").exists():
        return f"pipx install --force {what}"
    if (prefix / "uv-receipt.toml").exists():
        return f"uv tool install {what}"
    if "archive-v0" in prefix.parts or "environments-v2" in prefix.parts:  # of uv's cache
        return f"uvx --from {what} kbproc"
    return f"pip install {what}"


class Host:
    """The real surroundings."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def now(self) -> str:
        return rfc3339(self.now_ms())

    def monotonic_ms(self) -> float:
        """Milliseconds of a clock that never goes back."""
        return time.monotonic() * 1000

    def salt(self) -> str:
        """16 random bytes as hex."""
        return os.urandom(16).hex()

    def pid(self) -> int:
        return os.getpid()

    def cwd(self) -> Path:
        return Path.cwd()

    def database_size(self, measured: int) -> int:
        """Bytes on disk as told to clients; file sizes differ from run to run."""
        return measured

    def versions(self, measured: dict[str, str]) -> dict[str, str]:
        """Library versions as told to clients."""
        return measured
