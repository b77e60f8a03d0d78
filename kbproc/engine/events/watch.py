"""Defines the events of watched folders."""

from __future__ import annotations

from typing import ClassVar

from kbproc.engine.events.event import Event, Subject
from kbproc.engine.events.origin import PERSON, Origin


class FolderWatched(Event, frozen=True, tag="folder.watched"):
    """A folder is watched from now on, under these rules; earlier rules for it end.

    `machine`: the name of the machine that has the folder. `root`: no file outside of it is read;
    None: none outside of the folder. The rules are those of an ingest. `prune`: whether documents
    whose files are gone are removed. `poll`: the folder reports no changes and has to be looked at.
    `origin`: the origin of new documents, which is that of the caller.
    """

    stays: ClassVar[str] = "end it with watch.remove"

    machine: str
    path: str
    kb: str
    root: str | None = None
    glob: str | None = None
    exclude: list[str] = []
    tags: list[str] = []
    prune: str = "ask"
    all_files: bool = False
    max_file_bytes: int = 64 << 20
    poll: bool = False
    origin: Origin = PERSON

    def summary(self) -> str:
        return f"watch {self.path}"

    def concerns(self) -> Subject:
        return Subject(within=self.kb)


class FolderUnwatched(Event, frozen=True, tag="folder.unwatched"):
    """A folder is no longer watched; its documents stay."""

    stays: ClassVar[str] = "begin again with watch.add"

    machine: str
    path: str
    kb: str

    def summary(self) -> str:
        return f"end watching {self.path}"

    def concerns(self) -> Subject:
        return Subject(within=self.kb)
