"""Remembers what each session of an agent was shown, in small files of the store.

The files lie in the store's folder for hooks. They are no part of the log: without them a text may
be shown twice.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

import msgspec
from msgspec import Struct

from kbproc.base.hashes import blake2b
from kbproc.base.values import NOT_READABLE, decoder
from kbproc.engine.store.hook_log import folder_of, read_in, replace_in

_SESSIONS = "sessions"
_FOLDERS = "folders.json"
_MOST_SHOWN = 2000  # texts of one session; the oldest are forgotten first
_MOST_SESSIONS = 200
_MOST_FOLDERS = 500
_MOST_BYTES = 1 << 17
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,79}")


class SessionMemory(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The texts that one session was shown, by the ids of their chunks, oldest first.

    `since`: when the session before it ended; None if there was none. `knows_of_delay`: an
    answer has said that a prompt's search did not end in time.
    """

    chunk_ids: list[str] = []
    since: str | None = None
    knows_of_delay: bool = False


_decode_session = decoder(SessionMemory).decode
_decode_folders = decoder(dict[str, str]).decode


class Memory:
    """The memory of one session, and of the folder in which it works."""

    def __init__(
        self, store: Path, session: str | None, folder: str, *, is_shown: bool = True
    ) -> None:
        """Opens the store's folder for hooks. Raises OSError, also for a read-only disk.

        `is_shown`: false where the client shows its agent nothing, so that nothing is kept.
        """
        self._folder = folder
        self._is_shown = is_shown
        self.quoted_ids: list[int] = []  # the documents that this event's answer quotes
        self._name = None if session is None else f"{_file_name(session)}.json"
        self._hooks = folder_of(store)
        with contextlib.suppress(FileExistsError):
            os.mkdir(_SESSIONS, 0o700, dir_fd=self._hooks)
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        self._sessions = os.open(_SESSIONS, flags, dir_fd=self._hooks)

    def session(self) -> SessionMemory:
        """Returns what the session was shown; nothing if that can't be read."""
        data = None if self._name is None else read_in(self._sessions, self._name, _MOST_BYTES)
        try:
            return SessionMemory() if data is None else _decode_session(data)
        except NOT_READABLE:
            return SessionMemory()

    def keep(self, memory: SessionMemory) -> None:
        """Writes what the session was shown. Raises OSError: then nothing may be shown."""
        if self._name is None or not self._is_shown:
            return
        memory = msgspec.structs.replace(memory, chunk_ids=memory.chunk_ids[-_MOST_SHOWN:])
        self._make_room()
        replace_in(self._sessions, self._name, msgspec.json.encode(memory))

    def _make_room(self) -> None:
        """Removes the sessions that are the longest without an event, when there are too many."""
        with os.scandir(self._sessions) as entries:
            names = [entry.name for entry in entries]
        if self._name in names or len(names) < _MOST_SESSIONS:
            return
        times: list[tuple[float, str]] = []
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                times.append((os.stat(name, dir_fd=self._sessions).st_mtime, name))
        for _, name in sorted(times)[: len(names) - _MOST_SESSIONS + 1]:
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=self._sessions)

    def last_end(self) -> str | None:
        """Returns when the last session in this folder ended, or began."""
        return self._ends().get(self._folder)

    def keep_end(self, moment: str) -> None:
        """Writes when a session in this folder has ended, or begun. Raises OSError."""
        ends = self._ends()
        ends.pop(self._folder, None)
        recent = [*ends.items(), (self._folder, moment)][-_MOST_FOLDERS:]
        replace_in(self._hooks, _FOLDERS, msgspec.json.encode(dict(recent)))

    def _ends(self) -> dict[str, str]:
        data = read_in(self._hooks, _FOLDERS, _MOST_BYTES * 8)
        try:
            return {} if data is None else _decode_folders(data)
        except NOT_READABLE:
            return {}


def is_first_delay(store: Path, session: str | None) -> bool:
    """Returns true once in a session, and false for one without an id. Raises OSError."""
    memory = Memory(store, session, folder="")
    before = memory.session()
    if session is None or before.knows_of_delay:
        return False
    memory.keep(msgspec.structs.replace(before, knows_of_delay=True))
    return True


def _file_name(session: str) -> str:
    """Returns a session's id, or for one that is no plain name a digest of it."""
    if _PLAIN.fullmatch(session):
        return session
    return f"other-{blake2b(session.encode('utf-8', 'replace'), digest_size=16).hexdigest()}"
