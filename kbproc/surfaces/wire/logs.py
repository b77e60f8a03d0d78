"""Writes the process's log to stderr, as NDJSON lines; it is not the event log."""

from __future__ import annotations

import logging
import sys
import threading
from typing import TextIO

from kbproc.base.host import Host
from kbproc.base.values import as_json


class _NdjsonHandler(logging.Handler):
    """A handler that writes `{ts, level, msg, logger}`.

    Equal lines in a row become one, with `repeated`.
    """

    def __init__(self, stream: TextIO, host: Host) -> None:
        super().__init__()
        self._stream = stream
        self._host = host
        self._last: tuple[str, str, str] | None = None
        self._repeated = 0
        self._guard = threading.Lock()

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if record.exc_info:
            message += "\n" + logging.Formatter().formatException(record.exc_info)
        entry = (record.levelname.lower(), record.name, message)
        with self._guard:
            if entry == self._last:
                self._repeated += 1
                return
            self._write_repeats()
            self._last = entry
            self._write(entry, {})

    def _write_repeats(self) -> None:
        if self._repeated and self._last is not None:
            self._write(self._last, {"repeated": self._repeated})
        self._repeated = 0

    def _write(self, entry: tuple[str, str, str], more: dict[str, int]) -> None:
        level, name, message = entry
        line = {"ts": self._host.now(), "level": level, "msg": message, "logger": name, **more}
        try:
            self._stream.write(as_json(line).decode() + "\n")
            self._stream.flush()
        except (OSError, ValueError):  # because work goes on without stderr
            return

    def close(self) -> None:
        with self._guard:
            self._write_repeats()
        super().close()


def log_to_stderr(level: str, host: Host) -> None:
    """Sends the log to stderr from now on; removes earlier handlers."""
    root = logging.getLogger()
    for handler in root.handlers[:]:
        root.removeHandler(handler)
    root.addHandler(_NdjsonHandler(sys.stderr, host))
    set_level(level)


def set_level(level: str) -> None:
    """Sets kbproc's level; libraries log only warnings, because they may quote texts."""
    logging.getLogger("kbproc").setLevel(level.upper())
    logging.getLogger().setLevel(max(logging.WARNING, logging.getLogger("kbproc").level))
