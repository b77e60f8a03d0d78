"""The steps of a start: what each would do here, how it does so, and how it is undone.

A step that is done already does nothing again, so that a start which was interrupted goes on where
it was. Each write to the store has a token that names the folder, by which an undo finds it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct

from kbproc.base.clients import BY_NAME, HOOKS, SERVERS, SKILLS, Client, Places
from kbproc.base.errors import KbprocError
from kbproc.base.purpose import purpose_of
from kbproc.base.settings import profiles
from kbproc.base.settings.config import DEFAULT, Config
from kbproc.base.settings.trust import Trust
from kbproc.base.wording import duration_in_words, plural
from kbproc.surfaces.setup import hooks, servers, skills
from kbproc.surfaces.setup.change import Change, Flags, write_change
from kbproc.surfaces.start.record import StartRecord
from kbproc.surfaces.start.sight import ModelSight, Sight

# Two cores read about so much, so that a person knows whether to wait.
_BYTES_A_SECOND = 1_000_000
_MODEL_SECONDS = 20

Ask = Callable[[str, dict[str, Any]], dict[str, Any]]  # method, params → the result; raises


class Step(Struct, frozen=True, kw_only=True):
    """One step. `flag` leaves it out as --no-FLAG. `is_done`: there is nothing to do any more.

    `run` returns what it did, in words, and may raise KbprocError. `is_last`: it waits until the
    first answers are shown, which do not need it.
    """

    flag: str
    title: str
    run: Callable[[], str]
    is_done: bool = False
    is_last: bool = False


class Start(Struct, frozen=True, kw_only=True):
    """A start, as its steps see it. `config`: with the knowledge base of the folder."""

    config: Config
    places: Places
    trust: Trust
    sight: Sight
    record: StartRecord
    ask: Ask

    @property
    def folder(self) -> Path:
        return self.places.project

    def steps(self, model: ModelSight) -> list[Step]:
        """Returns the steps in their order."""
        return [
            self._link(),
            self._read(),
            self._watch(),
            *([self._chats()] if self.sight.chats else []),
            *self._clients("mcp", "the MCP server", SERVERS, self._server),
            *self._clients("hooks", "the hooks", HOOKS, self._hooks),
            *self._clients("skill", "the skill", SKILLS, self._skill),
            self._model(model),
        ]

    def _model(self, model: ModelSight) -> Step:
        def run() -> str:
            self._write("model.install", {})
            return "The model is here: searches go by meaning, too."

        title = f"Have the model {model.name}"
        if model.effects:
            size = f"{model.megabytes} MB, some {_MODEL_SECONDS} s"
            title = f"Install the model {model.name} ({size})"
        return Step(flag="model", title=title, run=run, is_done=not model.effects, is_last=True)

    def _link(self) -> Step:
        link, _ = profiles.find_link(self.folder, self.trust)
        kb = self.config.kb

        def run() -> str:
            with _unless("resource.already_exists"):
                purpose = purpose_of(self.folder)
                self._write("kb.create", {"slug": kb, "description": purpose})
            self.record.note("link", str(self.folder))
            binding = {"store": str(self.config.store), "kb": kb}
            profiles.link(self.folder, binding, self.trust)
            return f"Linked: searches in this folder look into the knowledge base {kb}."

        title = f"Link this folder to the knowledge base {kb}"
        return Step(flag="link", title=title, run=run, is_done=link is not None)

    def _read(self) -> Step:
        folder = self.sight.folder
        more = "more than " if folder.is_cut else ""
        seconds = duration_in_words(folder.bytes / _BYTES_A_SECOND)
        size = f"{more}{plural(folder.files, 'file')}, {_size(folder.bytes)}"

        def run() -> str:
            params = {"paths": [str(self.folder)], "kb": self.config.kb}
            data = self._write("doc.ingest", params)["data"]
            read = data["added"] + data["updated"] + data["moved"]
            unchanged = f", {data['unchanged']:,} as before" if data["unchanged"] else ""
            failures = f", {data['failed']:,} could not be read" if data["failed"] else ""
            return f"{plural(read, 'document')} read{unchanged}{failures}."

        title = f"Read this folder ({size}, some {seconds})"
        return Step(flag="read", title=title, run=run)

    def _watch(self) -> Step:
        def run() -> str:
            self._write("watch.add", {"folder": str(self.folder), "kb": self.config.kb})
            return "The folder is watched: changes are read while an agent has the store open."

        return Step(flag="watch", title="Watch it from now on", run=run)

    def _chats(self) -> Step:
        extents = [place.extent() for place in self.sight.chats]
        count, size = sum(each[0] for each in extents), sum(each[1] for each in extents)

        def run() -> str:
            params = {"project": str(self.folder), "kb": self.config.kb}
            data = self._write("chats.add", params)["data"]
            read = data["added"] + data["updated"]
            other = data["failed"] + data["unsupported"]
            failures = f", {other:,} could not be read" if other else ""
            return (
                f"{plural(read, 'conversation')} read, {data['unchanged']:,} as before{failures}."
            )

        logs = plural(count, "past session")
        title = f"Read {logs} of this folder, without secrets ({_size(size)})"
        return Step(flag="chats", title=title, run=run)

    # ------------------------------------------------------------------------- clients

    def _clients(
        self, flag: str, what: str, table: dict[str, Any], plan: Callable[[str], Change]
    ) -> list[Step]:
        """Returns a step that adds something to each client's settings; none without clients."""
        clients = [client for client in self.sight.clients if client.name in table]
        if not clients:
            return []
        lacking = [client for client in clients if not self._has(client, plan)]

        def run() -> str:
            for client in lacking:
                self._install(flag, client, plan)
            return f"Added {what} to {', '.join(client.title for client in lacking)}."

        names = ", ".join(client.title for client in lacking or clients)
        return [Step(flag=flag, title=f"Add {what} to {names}", run=run, is_done=not lacking)]

    def _has(self, client: Client, plan: Callable[[str], Change]) -> bool:
        try:
            return plan(client.name).is_done
        except KbprocError:  # because its settings can't be read, which the step will say
            return False

    def _install(self, flag: str, client: Client, plan: Callable[[str], Change]) -> None:
        change = plan(client.name)
        if change.before is None and flag == "skill":
            self.record.note("skill_files", str(change.path))
        self.record.note_folders(change.path)
        self.record.note(flag, client.name)
        write_change(
            lambda: plan(client.name), lambda text: None, done="has it already", agreed=True
        )

    @property
    def _flags(self) -> Flags:
        """Returns the flags that a client's command needs to reach the same store."""
        is_flag = self.config.origins.get("store", DEFAULT).level == "flag"
        return {"--store": [str(self.config.store)]} if is_flag else {}

    def _server(self, name: str) -> Change:
        is_project = SERVERS[name].is_project
        plan = servers.planned(self.config, self._flags, self.places, is_project=is_project)
        return servers.installed(name, plan.server, self.places)

    def _hooks(self, name: str) -> Change:
        return hooks.installed(name, self._flags, self.places)

    def _skill(self, name: str) -> Change:
        return skills.installed(name, self.places)

    # --------------------------------------------------------------------------- store

    def _write(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Returns the result of a write under a token of this folder; the plan is approved."""
        token = f"{self.record.token}{os.urandom(6).hex()}"
        return self.ask(method, {**params, "client_token": token})


@contextlib.contextmanager
def _unless(type: str) -> Iterator[None]:
    """Passes over an error of this type."""
    try:
        yield
    except KbprocError as error:
        if error.type != type:
            raise


def _size(bytes: int) -> str:
    return f"{bytes / 1e6:,.1f} MB" if bytes >= 100_000 else f"{max(1, round(bytes / 1e3))} kB"


def undo_settings(record: StartRecord, places: Places, trust: Trust) -> list[str]:
    """Takes back what a start did outside of the store; returns it in words."""
    words: list[str] = []
    for name in record.names("skill_files"):
        path = Path(name)
        with contextlib.suppress(OSError):
            if path.read_text(encoding="utf-8") == skills.text():
                path.unlink()
                words.append(f"removed {path}")
    for flag, removed in (("hooks", hooks.removed), ("mcp", servers.removed)):
        names = record.names(flag)
        for name in names:
            write_change(partial(removed, name, places), lambda text: None, done="", agreed=True)
        if names:
            titles = ", ".join(BY_NAME[name].title for name in names)
            words.append(f"took {flag} out of the settings of {titles}")
    for name in record.names("link"):
        with _unless("resource.not_found"):  # because a person has removed it
            profiles.unlink(Path(name), trust)
            words.append(f"removed the link of {name}")
    return words


def undo_writes(record: StartRecord, ask: Ask, folder: Path) -> list[str]:
    """Takes back what a start wrote into a store that others have written to, too."""
    words = []
    with _unless("resource.not_found"):  # because a person has ended the watch
        ask("watch.remove", {"folder": str(folder)})
        words.append("ended the watch")
    rows = writes(record, ask)
    seqs = [row["seq"] for row in rows if row["method"] != "watch.add"]
    for start in range(0, len(seqs), 1000):
        ask("events.revert", {"seqs": seqs[start : start + 1000]})
    if seqs:
        words.append(f"reverted {plural(len(seqs), 'record')} of the log")
    return words


def writes(record: StartRecord, ask: Ask, *, others: bool = False) -> list[dict[str, Any]]:
    """Returns the log's records that starts of the folder wrote; with `others` those of others."""
    rows: list[dict[str, Any]] = []
    params: dict[str, Any] = {"limit": 1000}
    while True:
        result = ask("events.read", params)
        rows += [
            row
            for row in result["data"]
            if str(row["token"] or "").startswith(record.token) != others
            and row["method"] != "store.create"
        ]
        if (cursor := result["meta"].get("next_cursor")) is None:
            return rows
        params["cursor"] = cursor
