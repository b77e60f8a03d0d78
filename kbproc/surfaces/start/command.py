"""Runs `kbproc start [FOLDER]`, and `kbproc start --undo`.

It looks, shows one plan, asks once, does the steps, and shows questions of the texts that were
read, with their answers. Without a terminal and without --yes it only shows the plan.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import textwrap
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from kbproc.base import person
from kbproc.base.clients import places_here
from kbproc.base.errors import KbprocError
from kbproc.base.host import Host, environment
from kbproc.base.settings import config as settings
from kbproc.base.settings import profiles
from kbproc.base.settings.config import DEFAULT, DEFAULT_KB, Config
from kbproc.base.values import SLUG
from kbproc.base.wording import plural
from kbproc.engine.store.folder import is_store
from kbproc.surfaces.start.questions import Answer, answered
from kbproc.surfaces.start.record import StartRecord
from kbproc.surfaces.start.sight import Sight, check_folder, look, look_at_model
from kbproc.surfaces.start.steps import Start, Step, undo_settings, undo_writes, writes


class Output(Protocol):
    """The printer of a start: lines for a person as it goes, else one answer."""

    for_people: bool

    def event(self, event: dict[str, Any]) -> None: ...
    def settled(self) -> None: ...
    def question(self, text: str) -> None: ...
    def note(self, message: str) -> None: ...
    def progress(self, stage: str, current: int, total: int | None) -> None: ...


class StartOptions(Struct, frozen=True, kw_only=True):
    """`left_out`: flags of the steps that the command line switches off."""

    config: Config
    folder: Path
    left_out: frozenset[str]
    agreed: bool
    dry_run: bool


class Outcome(Struct, frozen=True, kw_only=True):
    """The steps that a start did, and its answers. `code`: the exit code."""

    data: dict[str, Any]
    code: int = 0


Show = Callable[[str], object]


def start(options: StartOptions, output: Output, show: Show) -> Outcome:
    """Looks, plans, asks and does. Raises input.confirmation_required, and errors of a folder."""
    places = msgspec.structs.replace(places_here(), project=options.folder)
    check_folder(options.folder, places.home)
    trust = settings.trust_of(environment())
    sight = look(options.folder, places)
    config = _with_kb(options)
    asking = _Asking(config, output)
    record = StartRecord(places.records, options.folder)
    begun = Start(
        config=config, places=places, trust=trust, sight=sight, record=record, ask=asking.ask
    )
    model = look_at_model(config.store)
    steps = [step for step in begun.steps(model) if step.flag not in options.left_out]
    plan = _plan(sight, config, steps)
    if output.for_people:
        show(_plan_in_words(sight, config, steps))
    if options.dry_run:
        return Outcome(data={**plan, "dry_run": True})
    chosen = steps if options.agreed else _chosen(steps, output, plan)
    record.note_folders(record.path)
    if not is_store(config.store):
        record.note_folders(config.store / "store.toml")
        record.note("store", str(config.store))
    try:
        chosen = [step for step in chosen if not step.is_done]
        if output.for_people:
            show("\n")
        done = [_run(step, output, show) for step in chosen if not step.is_last]
        answers = _answers(asking, config.kb, output)
        if output.for_people:
            show(_answers_in_words(answers))
        done += [_run(step, output, show) for step in chosen if step.is_last]
        asking.embed()
    finally:
        asking.close()
    failed = [each for each in done if each["error"] is not None]
    data = {**plan, "done": done, "answers": [msgspec.structs.asdict(each) for each in answers]}
    return Outcome(data=data, code=3 if failed else 0)


def undo(options: StartOptions, output: Output, show: Show) -> Outcome:
    """Takes back what starts of the folder did. Raises input.confirmation_required."""
    places = msgspec.structs.replace(places_here(), project=options.folder)
    record = StartRecord(places.records, options.folder)
    if not record.is_there:
        raise KbprocError(
            "resource.not_found",
            f"No start of {options.folder} is on record.",
            field="FOLDER",
            hint="kbproc start --undo FOLDER undoes a start of that folder, once.",
        )
    config = _with_kb(options)
    words: list[str] = []
    asking = _Asking(config, output)
    try:
        is_ours = str(config.store) in record.names("store") and is_store(config.store)
        goes = is_ours and not writes(record, asking.ask, others=True)
        if output.for_people:
            show(_undo_in_words(record, config, goes))
        if options.dry_run:
            return Outcome(data={"undone": [], "dry_run": True})
        if not options.agreed:
            _agree(output, "Undo this? [y/N] ", "Nothing was undone.")
        if is_store(config.store) and not goes:
            words += undo_writes(record, asking.ask, options.folder)
    finally:
        asking.close()
    trust = settings.trust_of(environment())
    if goes:
        _remove_store(config.store)
        trust.drop_store(config.store)
        words.append(f"removed the store {config.store}")
    folders = record.names("folders")
    words += undo_settings(record, places, trust)
    record.drop()
    _remove_empty(folders)
    if output.for_people:
        show("".join(f"{word[0].upper()}{word[1:]}.\n" for word in words))
        show("The model stays, because other stores use it.\n")
    return Outcome(data={"undone": words})


# --------------------------------------------------------------------------- the store


class _Asking:
    """Asks the store's methods one after the other; a plan that comes back was agreed to before."""

    def __init__(self, config: Config, output: Output) -> None:
        self._config, self._output = config, output
        self._command: Any = None

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Returns the result. Raises KbprocError."""
        from kbproc.methods.all import registry
        from kbproc.surfaces.sharing.command import Command
        from kbproc.surfaces.sharing.link import refusal

        if self._command is None:
            self._command = Command(config=self._config, registry=registry(), host=Host())
        response = self._command.ask(method, params, self._output.event)
        error = response.get("error", {}).get("data", {})
        if "plan" in error and error["type"] == "input.confirmation_required":
            agreed = {**params, "confirm": error["plan"]["plan_hash"]}
            response = self._command.ask(method, agreed, self._output.event)
            error = response.get("error", {}).get("data", {})
        self._output.settled()
        if error:
            raise refusal(error)
        result: dict[str, Any] = response["result"]
        return result

    def embed(self) -> None:
        """Embeds what was read, if the model is here; Ctrl-C leaves it to later commands."""
        if self._command is not None:
            self._command.drain(0, self._output.progress, None)
            self._output.settled()

    def close(self) -> None:
        if self._command is not None:
            self._command.close()
        self._command = None


def _with_kb(options: StartOptions) -> Config:
    """Returns the settings with the store and the knowledge base of the folder.

    A flag comes first, then the folder's link; without a link the folder gives the name.
    """
    config = options.config
    link, _ = profiles.find_link(options.folder, settings.trust_of(environment()))
    changes: dict[str, Any] = {}
    if link is not None:
        for key in profiles.LINKED:
            if config.origins.get(key, DEFAULT).level != "flag" and key in link.settings:
                changes[key] = link.settings[key]
        if "store" in changes:
            changes["store"] = Path(changes["store"])
    elif config.origins.get("kb", DEFAULT) == DEFAULT and "link" not in options.left_out:
        slug = re.sub(r"[^a-z0-9]+", "-", options.folder.name.lower()).strip("-")[:64]
        changes["kb"] = slug if re.fullmatch(SLUG, slug) else DEFAULT_KB
    return msgspec.structs.replace(config, **changes)


def _remove_store(store: Path) -> None:
    """Removes a store that holds nothing but what a start wrote. Raises store.locked."""
    from kbproc.engine.store.folder import take_folder

    lease = take_folder(store, Host().pid())
    try:
        shutil.rmtree(store)
    finally:
        lease.release()


def _remove_empty(folders: list[str]) -> None:
    """Removes the folders that a start made, if nothing but locks of kbproc lies in them."""
    for name in reversed(folders):
        with contextlib.suppress(OSError):
            files = list(Path(name).iterdir())
            if [file.name for file in files] == ["trusted.lock"]:
                files[0].unlink()
            Path(name).rmdir()


# -------------------------------------------------------------------------- the steps


def _run(step: Step, output: Output, show: Show) -> dict[str, Any]:
    """Runs a step; one that fails does not keep the others from being done."""
    error = None
    try:
        words = step.run()
    except KbprocError as failure:
        hint = f" {failure.hint}" if failure.hint else ""
        words, error = f"{step.title}: failed. {failure.message}{hint}", failure.type
    if output.for_people:
        show(textwrap.fill(words, 76, initial_indent="- ", subsequent_indent="  ") + "\n")
    return {"step": step.flag, "outcome": words, "error": error}


def _chosen(steps: list[Step], output: Output, plan: dict[str, Any]) -> list[Step]:
    """Returns the steps that a person in the terminal agrees to; raises without one."""
    question = "Do this? y, N, or the numbers of steps to leave out, such as 2 5: "
    typed = _agree(
        output,
        question,
        "Nothing was done.",
        numbers=range(1, len(steps) + 1),
        detail=plan,
    )
    return [step for number, step in enumerate(steps, 1) if number not in typed]


def _agree(
    output: Output,
    question: str,
    nothing: str,
    *,
    numbers: Collection[int] = (),
    detail: dict[str, Any] | None = None,
) -> set[int]:
    """Returns the numbers that a person leaves out; none for yes.

    Raises input.confirmation_required without a terminal, operation.cancelled for no.
    """
    if not person.is_there():
        raise KbprocError(
            "input.confirmation_required",
            f"{nothing} A person has to agree.",
            hint="To do what is shown, add --yes to the same command.",
            detail=detail or {},
        )
    output.question(question)
    line = person.typed()
    words = line.replace(",", " ").split()
    if words and all(word.isdecimal() and int(word) in numbers for word in words):
        return {int(word) for word in words}
    if person.agrees(line):
        return set()
    raise KbprocError("operation.cancelled", nothing, hint="Run it again and type y.")


def _answers(asking: _Asking, kb: str, output: Output) -> list[Answer]:
    try:
        return answered(asking.ask, kb)
    except KbprocError as error:
        output.note(error.message)
        return []


# -------------------------------------------------------------------------- in words


def _plan(sight: Sight, config: Config, steps: list[Step]) -> dict[str, Any]:
    """Returns the plan as data."""
    folder = sight.folder
    return {
        "folder": str(folder.path),
        "kind": folder.kind,
        "files": folder.files,
        "bytes": folder.bytes,
        "unread": folder.unread,
        "store": str(config.store),
        "kb": config.kb,
        "clients": [client.name for client in sight.clients],
        "sessions": {place.client: place.extent()[0] for place in sight.chats},
        "steps": [
            {"step": step.flag, "title": step.title, "is_done": step.is_done} for step in steps
        ],
    }


def _plan_in_words(sight: Sight, config: Config, steps: list[Step]) -> str:
    folder = sight.folder
    clients = ", ".join(client.title for client in sight.clients) or "none that kbproc knows"
    sessions = ", ".join(
        f"{plural(place.extent()[0], 'log')} of {place.client}" for place in sight.chats
    )
    store = _from_home(config.store)
    store += "" if is_store(config.store) else ", which will be made"
    rows = [
        ("folder", f"{_from_home(folder.path)}, {folder.kind}"),
        ("agents", clients),
        ("sessions", sessions or "none that ran in this folder"),
        ("store", store),
    ]
    lines = [f"{name:<10}{text}" for name, text in rows]
    lines += ["", "Plan"]
    for number, step in enumerate(steps, 1):
        switch = "done already" if step.is_done else f"--no-{step.flag}"
        title = textwrap.wrap(step.title, 58)
        lines.append(f"{number:>2}  {title[0]:<60}{switch}")
        lines += [f"    {more}" for more in title[1:]]
    if any(step.is_last and not step.is_done for step in steps):
        lines += ["", "The package index of pip is asked for the model; nothing is sent anywhere."]
    return "\n".join(lines) + "\n"


def _from_home(path: Path) -> str:
    home = places_here().home
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


def _answers_in_words(answers: list[Answer]) -> str:
    lines = []
    if answers:
        lines += ["", "Questions from what was read, and what a search answers:"]
    for number, answer in enumerate(answers, 1):
        text = textwrap.shorten(answer.text, 240, placeholder=" …")
        lines += ["", f"{number}. {answer.question}"]
        lines += textwrap.wrap(text, 76, initial_indent="   ", subsequent_indent="   ")
        lines.append(f"   ({answer.cite})")
    question = answers[0].question if answers else "a question"
    lines += [
        "",
        "Next",
        f'  kbproc search "{question}"   in this folder',
        "  kbproc open            shows the store on a page",
        "  kbproc start --undo    takes all of this back",
        "  or ask your agent, when it starts anew",
    ]
    return "\n".join(lines) + "\n"


def _undo_in_words(record: StartRecord, config: Config, goes: bool) -> str:
    lines = [f"A start of {record.folder} is undone:"]
    for flag in ("mcp", "hooks", "skill"):
        if names := record.names(flag):
            lines.append(f"  take {flag} out of {', '.join(names)}")
    if record.names("link"):
        lines.append("  remove the folder's link")
    if goes:
        lines.append(f"  remove the store {config.store}, which holds nothing else")
    else:
        lines.append("  hide what it read; the log keeps the texts until kbproc store purge")
    return "\n".join(lines) + "\n"
