"""Runs `kbproc call METHOD` on a store that another process owns, with few imports.

Only a request that needs nothing but the owner's answer takes this path; the answer is
printed as the json format does.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Any

import msgspec

from kbproc.base.durable import write_all
from kbproc.base.errors import KbprocError
from kbproc.base.host import environment
from kbproc.base.paths import working_folder
from kbproc.base.settings.config import Config, load
from kbproc.base.values import as_json
from kbproc.client.asker import Asker, Message
from kbproc.surfaces.sharing.link import Gone, Link, converse, hello
from kbproc.surfaces.sharing.reach import connect, state_of

_LOCAL = frozenset({"version", "describe", "schema", "doctor"})
_INTERRUPTED = 130


def call(argv: list[str]) -> int | None:
    """Prints the answer and returns the exit code; returns None if the full path is needed."""
    if argv[:1] != ["call"] or len(argv) not in (2, 3) or argv[1] in _LOCAL:
        return None
    if argv[1].startswith("-") or sys.stdout.isatty():
        return None
    try:
        config = load(environment())
        params = _params(argv[2:])
        if config.format not in (None, "json") or config.notes or params is None:
            return None
        if "kb" in config.origins:  # because this path does not know which methods use it
            return None
        return _ask(config, argv[1], params)
    except (KbprocError, Gone, OSError, msgspec.DecodeError, UnicodeError):
        return None
    except KeyboardInterrupt:
        return _interrupted()


def _params(words: list[str]) -> bytes | None:
    """Returns the params, a JSON object; None if they need the full path."""
    if not words:
        return b"{}"
    if not words[0].startswith("{") or "timeout_ms" in words[0]:
        return None
    msgspec.json.decode(words[0].encode(), type=dict[str, Any])
    return words[0].encode()


def _ask(config: Config, method: str, params: bytes) -> int | None:
    connection = connect(config.store)
    if connection is None:
        return None
    link = Link(connection)

    def check() -> None:
        """Leaves a stopped owner to the full path, which reports it."""
        if state_of(link.pid) == "stopped":
            raise Gone

    try:
        if method not in link.greet(hello(config, working_folder()), check).reads:
            return None
        asker = Asker()
        answers: list[Message] = []
        asker.ask(method, msgspec.Raw(params), answers.append)
        converse(asker, link, check)
        return _print(answers[0], config.profile)
    finally:
        link.close()


def _interrupted() -> int:
    from kbproc.surfaces.wire.messages import error_data  # imported late, because it is heavy

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
