"""`kbproc call METHOD` on a store that another process owns, at the least cost.

Owns: recognising a request that needs nothing but the owner's answer, and printing it
as the json format does.
Refuses to know: flags, formats for people, writes, streams, and everything that may go
wrong: a request that is not plain goes the usual way, as if nothing had been tried.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Any

import msgspec

from kbproc.base.durable import write_all
from kbproc.base.errors import KbprocError
from kbproc.base.values import as_json
from kbproc.settings.config import Config, environment, load
from kbproc.sharing import reach
from kbproc.sharing.reach import Gone, Link
from kbproc.sharing.waiting import Waiting, state_of

_LOCAL = frozenset({"version", "describe", "schema", "doctor"})
_INTERRUPTED = 130


def call(argv: list[str]) -> int | None:
    """The exit code, once the answer is printed; None where the usual way is needed."""
    if argv[:1] != ["call"] or len(argv) not in (2, 3) or argv[1] in _LOCAL:
        return None
    if argv[1].startswith("-") or sys.stdout.isatty():
        return None
    try:
        config = load(environment())
        params = _params(argv[2:])
        if config.format not in (None, "json") or config.notes or params is None:
            return None
        if "kb" in config.origins:  # reads look at it, and which those are is known elsewhere
            return None
        return _asked(config, argv[1], params)
    except (KbprocError, Gone, OSError, msgspec.DecodeError, UnicodeError):
        return None
    except KeyboardInterrupt:
        return _interrupted()


def _params(words: list[str]) -> bytes | None:
    """One JSON object, or nothing."""
    if not words:
        return b"{}"
    if not words[0].startswith("{") or "timeout_ms" in words[0]:
        return None
    msgspec.json.decode(words[0].encode(), type=dict[str, Any])
    return words[0].encode()


def _asked(config: Config, method: str, params: bytes) -> int | None:
    connection = reach.connect(config.store)
    if connection is None:
        return None
    link = Link(connection, reach.hello(config, Path.cwd()), _Impatient(config.store))
    try:
        if method not in link.welcome.reads:
            return None
        link.send({"jsonrpc": "2.0", "id": 1, "method": method, "params": msgspec.Raw(params)})
        while (line := link.line()).startswith(b'{"jsonrpc":"2.0","method"'):
            pass
        return _print(msgspec.json.decode(line), config.profile)
    finally:
        link.close()


class _Impatient(Waiting):
    """Leaves an owner that is stopped to the usual way, which says so."""

    def for_answer(self, pid: int) -> None:
        if state_of(pid) == "stopped":
            raise Gone


def _interrupted() -> int:
    from kbproc.wire.messages import error_data  # heavier than all the rest here

    data = error_data(KbprocError("operation.cancelled", "Interrupted."))
    _write(2, {"ok": False, "error": {**msgspec.to_builtins(data), "exit_code": _INTERRUPTED}})
    return _INTERRUPTED


def _print(response: dict[str, Any], profile: str | None) -> int:
    if "result" in response:
        _write(1, {"ok": True, **response["result"], "profile": profile})
        return 0
    data = response["error"]["data"]
    _write(2, {"ok": False, "error": data})
    return int(data["exit_code"])


def _write(fd: int, value: Any) -> None:
    with contextlib.suppress(BrokenPipeError):  # a reader that has gone away is no error
        write_all(fd, as_json(value) + b"\n")
