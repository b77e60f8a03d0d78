"""What a user has said may be used, though somebody else may have put it there.

Owns: the file of what was approved: links by path and content; models, endpoints that answer,
cross-encoders and shared logs by store and settings.
Refuses to know: what a link says, and what a model is.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from kbproc.base import durable
from kbproc.base.values import canonical, decoder
from kbproc.settings import toml

FILE = "trusted.json"


class Approved(Struct, frozen=True, kw_only=True):
    """`links`: path → sha256 of the file; `models`: store → sha256 of the model's settings; `llms`,
    `rerankers` and `logs`: the same of the endpoint that answers, of the cross-encoder, and of the
    servers that have its log.
    """

    links: dict[str, str] = {}
    models: dict[str, str] = {}
    llms: dict[str, str] = {}
    rerankers: dict[str, str] = {}
    logs: dict[str, str] = {}


_decode = decoder(Approved).decode


class Trust:
    """The approvals of one user, kept in the file at `path`."""

    def __init__(self, path: Path | None) -> None:
        """None: nothing is approved, and nothing can be."""
        self._path = path

    def has_link(self, link: Path, data: bytes) -> bool:
        """Whether this very content was approved at this place. Raises store.io."""
        return self._read().links.get(_place(link)) == _sum(data)

    def add_link(self, link: Path, data: bytes) -> None:
        """Raises store.io."""
        self._change(lambda now: replace(now, links={**now.links, _place(link): _sum(data)}))

    def has_model(self, store: Path, settings: Mapping[str, Any]) -> bool:
        """Whether these very settings were approved for this store. Raises store.io."""
        return self._read().models.get(_place(store)) == _sum(canonical(settings))

    def add_model(self, store: Path, settings: Mapping[str, Any]) -> None:
        """Raises store.io."""
        approved = {_place(store): _sum(canonical(settings))}
        self._change(lambda now: replace(now, models={**now.models, **approved}))

    def has_llm(self, store: Path, settings: Mapping[str, Any]) -> bool:
        """Raises store.io."""
        return self._read().llms.get(_place(store)) == _sum(canonical(settings))

    def add_llm(self, store: Path, settings: Mapping[str, Any]) -> None:
        """Raises store.io."""
        approved = {_place(store): _sum(canonical(settings))}
        self._change(lambda now: replace(now, llms={**now.llms, **approved}))

    def has_reranker(self, store: Path, settings: Mapping[str, Any]) -> bool:
        """Raises store.io."""
        return self._read().rerankers.get(_place(store)) == _sum(canonical(settings))

    def add_reranker(self, store: Path, settings: Mapping[str, Any]) -> None:
        """Raises store.io."""
        approved = {_place(store): _sum(canonical(settings))}
        self._change(lambda now: replace(now, rerankers={**now.rerankers, **approved}))

    def has_log(self, store: Path, settings: Mapping[str, Any]) -> bool:
        """Whether these very servers were approved for this store. Raises store.io."""
        return self._read().logs.get(_place(store)) == _sum(canonical(settings))

    def add_log(self, store: Path, settings: Mapping[str, Any]) -> None:
        """Raises store.io."""
        approved = {_place(store): _sum(canonical(settings))}
        self._change(lambda now: replace(now, logs={**now.logs, **approved}))

    def _change(self, approve: Callable[[Approved], Approved]) -> None:
        """Keeps what `approve` makes of what was approved by now. Raises store.io."""
        if self._path is None:
            return
        with toml.locked(self._path):
            data = msgspec.json.encode(approve(self._read()), order="sorted")
            try:
                durable.replace(self._path, data)
            except OSError as error:
                raise toml.failed(self._path, error) from None

    def _read(self) -> Approved:
        """Nothing is approved where the file can't be understood: it is asked for again."""
        if self._path is None:
            return Approved()
        try:
            return _decode(self._path.read_bytes())
        except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError):
            return Approved()
        except OSError as error:
            raise toml.failed(self._path, error) from None


def _place(path: Path) -> str:
    """Without links, so that one file has one name; text, whatever bytes are in it."""
    return os.fsencode(os.path.realpath(path)).decode("utf-8", "backslashreplace")


def _sum(data: bytes) -> str:
    from hashlib import sha256  # not above: it takes a millisecond, and most starts need none

    return sha256(data).hexdigest()
