"""Remembers which links, models and servers a user has approved.

Another person may have put these settings there, so they are used only after approval. Links are
approved by path and content; models, LLM endpoints, cross-encoders, shared logs and watched
folders by store and settings.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from kbproc.base.settings import toml
from kbproc.base.values import canonical, decoder

FILE = "trusted.json"
_FORMER = 2  # the model before, and the one in use while a change to another is under way


class ApprovedFolder(Struct, frozen=True, kw_only=True):
    """A watched folder as it was approved: the sha256 of its rules, and the mount it lay in."""

    rules: str
    mount: str


class Approved(Struct, frozen=True, kw_only=True):
    """A user's approvals.

    `links`: path → sha256 of the file. `models`: store → sha256 of the model's settings, and
    `former_models`: those that were approved before, because a change of models can be undone, or
    be under way. `llms`, `rerankers` and `logs`: the same for the LLM endpoint, the cross-encoder
    and the servers of the shared log. `watches`: store → watched folder → what was approved of it.
    """

    links: dict[str, str] = {}
    models: dict[str, str] = {}
    former_models: dict[str, list[str]] = {}
    llms: dict[str, str] = {}
    rerankers: dict[str, str] = {}
    logs: dict[str, str] = {}
    watches: dict[str, dict[str, ApprovedFolder]] = {}


_decode = decoder(Approved).decode


class Trust:
    """The approvals of one user, kept in the file at `path`."""

    def __init__(self, path: Path | None) -> None:
        """Opens the file's approvals; with None nothing is approved, and nothing can be."""
        self._path = path

    def beside(self, name: str) -> Path | None:
        """Returns the path of another file of the same user; None if there are no approvals."""
        return None if self._path is None else self._path.with_name(name)

    def has_link(self, link: Path, data: bytes) -> bool:
        """Returns whether this content was approved at this path. Raises store.io."""
        return self._read().links.get(_place(link)) == _sum(data)

    def add_link(self, link: Path, data: bytes) -> None:
        """Approves a link. Raises store.io."""
        self._change(lambda now: replace(now, links={**now.links, _place(link): _sum(data)}))

    def drop_link(self, link: Path) -> None:
        """Withdraws the approval of a link. Raises store.io."""
        self._change(lambda now: replace(now, links=_without(now.links, _place(link))))

    def drop_store(self, store: Path) -> None:
        """Withdraws every approval for a store that is no more. Raises store.io."""
        name = _place(store)

        def withdraw(now: Approved) -> Approved:
            tables = ("models", "former_models", "llms", "rerankers", "logs", "watches")
            return replace(now, **{each: _without(getattr(now, each), name) for each in tables})

        self._change(withdraw)

    def has_model(self, store: Path, settings: Mapping[str, Any]) -> bool:
        """Returns whether these model settings were approved for this store. Raises store.io."""
        now, name = self._read(), _place(store)
        approved = (now.models.get(name), *now.former_models.get(name, []))
        return _sum(canonical(settings)) in approved

    def add_model(self, store: Path, settings: Mapping[str, Any]) -> None:
        """Approves a model for a store; the two approved last stay approved. Raises store.io."""
        name, approved = _place(store), _sum(canonical(settings))

        def approve(now: Approved) -> Approved:
            before = [*filter(None, [now.models.get(name)]), *now.former_models.get(name, [])]
            former = [one for one in dict.fromkeys(before) if one != approved][:_FORMER]
            others = {**now.former_models, name: former} if former else now.former_models
            return replace(now, models={**now.models, name: approved}, former_models=others)

        self._change(approve)

    def has_llm(self, store: Path, settings: Mapping[str, Any]) -> bool:
        """Returns whether this LLM endpoint was approved for this store. Raises store.io."""
        return self._read().llms.get(_place(store)) == _sum(canonical(settings))

    def add_llm(self, store: Path, settings: Mapping[str, Any]) -> None:
        """Approves an LLM endpoint for a store. Raises store.io."""
        approved = {_place(store): _sum(canonical(settings))}
        self._change(lambda now: replace(now, llms={**now.llms, **approved}))

    def has_reranker(self, store: Path, settings: Mapping[str, Any]) -> bool:
        """Returns whether this cross-encoder was approved for this store. Raises store.io."""
        return self._read().rerankers.get(_place(store)) == _sum(canonical(settings))

    def add_reranker(self, store: Path, settings: Mapping[str, Any]) -> None:
        """Approves a cross-encoder for a store. Raises store.io."""
        approved = {_place(store): _sum(canonical(settings))}
        self._change(lambda now: replace(now, rerankers={**now.rerankers, **approved}))

    def has_log(self, store: Path, settings: Mapping[str, Any]) -> bool:
        """Returns whether these servers were approved for this store's log. Raises store.io."""
        return self._read().logs.get(_place(store)) == _sum(canonical(settings))

    def add_log(self, store: Path, settings: Mapping[str, Any]) -> None:
        """Approves the servers of a store's log. Raises store.io."""
        approved = {_place(store): _sum(canonical(settings))}
        self._change(lambda now: replace(now, logs={**now.logs, **approved}))

    def watch_of(self, store: Path, folder: str, rules: Mapping[str, Any]) -> ApprovedFolder | None:
        """Returns the folder's approval; None if it was not approved with these rules.

        Raises store.io.
        """
        approved = self._read().watches.get(_place(store), {}).get(folder)
        return approved if approved and approved.rules == _sum(canonical(rules)) else None

    def add_watch(self, store: Path, folder: str, rules: Mapping[str, Any], mount: str) -> None:
        """Approves a watched folder for a store; `mount`: the one it lies in. Raises store.io."""
        approved = ApprovedFolder(rules=_sum(canonical(rules)), mount=mount)

        def approve(now: Approved) -> Approved:
            folders = {**now.watches.get(_place(store), {}), folder: approved}
            return replace(now, watches={**now.watches, _place(store): folders})

        self._change(approve)

    def drop_watch(self, store: Path, folder: str) -> None:
        """Withdraws the approval of a watched folder. Raises store.io."""

        def withdraw(now: Approved) -> Approved:
            folders = dict(now.watches.get(_place(store), {}))
            folders.pop(folder, None)
            return replace(now, watches={**now.watches, _place(store): folders})

        self._change(withdraw)

    def _change(self, approve: Callable[[Approved], Approved]) -> None:
        """Replaces the approvals by the result of `approve`, under a lock. Raises store.io."""
        if self._path is None:
            return
        from kbproc.base import disk, durable  # not above: most processes approve of nothing

        with toml.locked(self._path):
            after = approve(self._read())
            try:
                if after != Approved():
                    durable.replace(self._path, msgspec.json.encode(after, order="sorted"))
                elif self._path.exists():
                    disk.unlink(self._path)
            except OSError as error:
                raise toml.failed(self._path, error) from None

    def _read(self) -> Approved:
        """Returns the approvals; none if the file can't be understood, so that they are asked for
        again.
        """
        if self._path is None:
            return Approved()
        try:
            return _decode(self._path.read_bytes())
        except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError):
            return Approved()
        except OSError as error:
            raise toml.failed(self._path, error) from None


def _without(table: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in table.items() if key != name}


def _place(path: Path) -> str:
    """Returns the real path as text, whatever bytes it holds, so that one file has one name."""
    return os.fsencode(os.path.realpath(path)).decode("utf-8", "backslashreplace")


def _sum(data: bytes) -> str:
    from kbproc.base.hashes import sha256  # not above: most starts don't need it

    return sha256(data).hexdigest()
