"""Adds the hooks to the settings of coding agents, and removes them.

Sources of the settings' shapes: see protocol.py. All other settings stay. While the settings are
as an installation has left them, a removal restores every byte of what was there before; otherwise
it removes the hooks alone. A file in kbproc's own folder of settings records what to restore.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from kbproc.base.durable import make_folder, replace
from kbproc.base.errors import KbprocError
from kbproc.base.paths import absolute
from kbproc.base.suggest import closest, did_you_mean
from kbproc.base.values import NOT_READABLE, decoder
from kbproc.surfaces.hooks.deadline import RECORD, RECORDED, deadline_of, is_deadline
from kbproc.surfaces.hooks.work import options_of
from kbproc.surfaces.mcp.setup import jsonc
from kbproc.surfaces.mcp.setup.clients import Change, Places, program_words

_OURS = re.compile(r"kbproc\S{0,200} hook (session-start|prompt|pre-compact|session-end)\b")
_RECORD = "hooks-installed.json"
_BEGIN, _END = "# kbproc hooks: begin", "# kbproc hooks: end"
_PATIENCE_S = 4  # seconds beyond the deadline, after which a client ends a hook
_FOR_PROMPT, _FOR_START = "--tokens", "--start-tokens"

Flags = Mapping[str, Sequence[str | bool]]  # flag → its values, in their order


class HookClient(Struct, frozen=True, kw_only=True):
    """A coding agent with hooks. `events`: ours → the client's name for it.

    `handler`: what stands in the settings for a command and its timeout in seconds. `is_flat`:
    the handlers stand in the event's list themselves, not in groups with a matcher. `next_step`:
    advice on how to have the client run the hooks.
    """

    path: Callable[[Places], Path]
    events: dict[str, str]
    handler: Callable[[str, int], dict[str, Any]]
    is_flat: bool = False
    first: dict[str, Any] = {}
    next_step: str | None = None


def _in_seconds(command: str, seconds: int) -> dict[str, Any]:
    return {"type": "command", "command": command, "timeout": seconds}


def _in_milliseconds(command: str, seconds: int) -> dict[str, Any]:
    return {"type": "command", "name": "kbproc", "command": command, "timeout": seconds * 1000}


def _codex(at: Places) -> Path:
    """Returns hooks.json where a person keeps hooks in it, because Codex warns of two files.

    An earlier installation in config.toml goes on there.
    """
    folder = at.named_by("CODEX_HOME", at.home / ".codex")
    tables = folder / "config.toml"
    with contextlib.suppress(OSError):
        if _BEGIN.encode() in tables.read_bytes():
            return tables
    return folder / "hooks.json" if (folder / "hooks.json").exists() else tables


CLIENTS = {
    "claude-code": HookClient(
        path=lambda at: at.named_by("CLAUDE_CONFIG_DIR", at.home / ".claude") / "settings.json",
        events={
            "session-start": "SessionStart",
            "prompt": "UserPromptSubmit",
            "pre-compact": "PreCompact",
            "session-end": "SessionEnd",
        },
        handler=_in_seconds,
    ),
    "codex": HookClient(
        path=_codex,
        events={
            "session-start": "SessionStart",
            "prompt": "UserPromptSubmit",
            "pre-compact": "PreCompact",
            "session-end": "Stop",
        },
        handler=_in_seconds,
        next_step="Codex runs new hooks only once you have trusted them: /hooks lists them.",
    ),
    "cursor": HookClient(
        path=lambda at: at.home / ".cursor" / "hooks.json",
        events={
            "session-start": "sessionStart",
            "pre-compact": "preCompact",
            "session-end": "sessionEnd",
        },
        handler=lambda command, seconds: {"command": command, "timeout": seconds},
        is_flat=True,
        first={"version": 1},
        next_step="Cursor takes no context for a prompt, so it gets what holds for the project "
        "when a session starts, and nothing more.",
    ),
    "gemini": HookClient(
        path=lambda at: at.named_by("GEMINI_CLI_HOME", at.home) / ".gemini" / "settings.json",
        events={
            "session-start": "SessionStart",
            "prompt": "BeforeAgent",
            "pre-compact": "PreCompress",
            "session-end": "SessionEnd",
        },
        handler=_in_milliseconds,
    ),
}


def find(name: str) -> HookClient:
    """Returns the client of that name. Raises input.invalid_params."""
    client = CLIENTS.get(name)
    if client is None:
        raise KbprocError(
            "input.invalid_params",
            f"The hooks of a client {name!r} are not known.",
            field="CLIENT",
            valid_values=list(CLIENTS),
            hint=f"{did_you_mean(closest(name, CLIENTS))}Any other client with hooks like those "
            "of Claude Code can run kbproc hook EVENT.",
        )
    return client


def commands(client: HookClient, flags: Flags) -> dict[str, str]:
    """Returns event → command line, with the flags that concern it. Raises input.invalid_params."""
    lines: dict[str, str] = {}
    for event in client.events:
        words = [event, *_flags_of(event, flags)]
        options_of(words)  # checks them
        lines[event] = shlex.join([*program_words(portable=False), "hook", *words])
    return lines


def _flags_of(event: str, flags: Flags) -> Iterator[str]:
    budget = {"prompt": _FOR_PROMPT, "session-start": _FOR_START}.get(event)
    for name, values in flags.items():
        value = str(values[-1])
        if name == "--deadline-ms":
            if not is_deadline(value):
                raise KbprocError(
                    "input.invalid_params",
                    f"--deadline-ms is {value!r}; it can be 200 to 60000.",
                    field="--deadline-ms",
                )
            yield from (name, value)
        elif name == "--store":
            yield from (name, str(absolute(value, field=name)))
        elif name in {"--quote", "--kb", "--agent", "--profile"}:
            yield from (name, value)
        elif name == RECORD and event in RECORDED:
            yield RECORD
        elif name == budget:
            yield from ("--tokens", value)


def _seconds(line: str) -> int:
    """Returns after how many seconds a client ends the hook with this command line."""
    return -(-deadline_of(shlex.split(line)) // 1000) + _PATIENCE_S


class HookRestoration(Struct, frozen=True, kw_only=True):
    """How to restore the settings before an installation.

    `sha256`: of the settings after it. `text` stood in the place of their characters from `start`
    to `end`. `is_new`: there was no file.
    """

    sha256: str
    start: int = 0
    end: int = 0
    text: str = ""
    is_new: bool = False


_decode = decoder(dict[str, HookRestoration]).decode


class HookChange(Change, frozen=True, kw_only=True):
    """A change that records how to restore the settings; `restoration`: None forgets it."""

    records: Path
    restoration: HookRestoration | None

    def write(self) -> None:
        """Writes the settings, and the record. Raises store.io."""
        super().write()
        records = _known(self.records)
        records.pop(_name(self.path), None)
        if self.restoration is not None:
            records[_name(self.path)] = self.restoration
        with contextlib.suppress(OSError):  # a removal then removes the hooks alone
            make_folder(self.records.parent)
            if records:
                replace(self.records, msgspec.json.format(msgspec.json.encode(records)))
            else:
                self.records.unlink(missing_ok=True)


def installed(name: str, flags: Flags, places: Places) -> HookChange:
    """Returns the change that adds the hooks, in place of those of an earlier installation.

    Raises input.invalid_params for flags that no hook takes, and settings that can't be read.
    """
    client = find(name)
    path, lines = client.path(places), commands(client, flags)
    hooks = [
        (client.events[event], client.handler(line, _seconds(line)))
        for event, line in lines.items()
    ]
    before = _read(name, path)
    records = places.settings / "kbproc" / _RECORD
    with _readable(name, path):
        original = _original(records, path, before)
        text = original or ""
        if path.suffix == ".toml":
            after = _with_toml(text, hooks)
        else:
            after = _with_json(client, text, hooks)
        _check(path, text, after)
    restoration = _restoration(original, after)
    return HookChange(
        path=path, before=before, after=after, records=records, restoration=restoration
    )


def removed(name: str, places: Places) -> HookChange:
    """Returns the change that removes the hooks. Raises input.invalid_params."""
    path = find(name).path(places)
    before = _read(name, path)
    records = places.settings / "kbproc" / _RECORD
    with _readable(name, path):
        after = _original(records, path, before)
    return HookChange(path=path, before=before, after=after, records=records, restoration=None)


def _read(name: str, path: Path) -> str | None:
    try:
        return path.read_bytes().decode()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise _broken(name, path, str(error)) from None


@contextlib.contextmanager
def _readable(name: str, path: Path) -> Iterator[None]:
    """Turns the errors of settings that can't be changed into input.invalid_params."""
    try:
        yield
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise _broken(name, path, str(error)) from None


def _broken(name: str, path: Path, why: str) -> KbprocError:
    return KbprocError(
        "input.invalid_params",
        f"{path} stays as it is, because its hooks can't be changed: {why}.",
        field="CLIENT",
        hint=f"Correct the file, or change its hooks by hand: kbproc docs hooks has those of "
        f"{name}.",
    )


# ---------------------------------------------------------------------- restoring


def _name(path: Path) -> str:
    return str(path.resolve())


def _known(records: Path) -> dict[str, HookRestoration]:
    try:
        return _decode(records.read_bytes())
    except (OSError, *NOT_READABLE):
        return {}


def _restoration(original: str | None, after: str) -> HookRestoration:
    """Returns how to get from the new settings back to the original ones."""
    text = original or ""
    start = _shared_length(text, after)
    most = min(len(text), len(after)) - start
    ending = min(most, _shared_length(text[::-1], after[::-1]))
    return HookRestoration(
        sha256=_sha256(after),
        start=start,
        end=len(after) - ending,
        text=text[start : len(text) - ending],
        is_new=original is None,
    )


def _shared_length(one: str, other: str) -> int:
    """Returns the number of characters with which both texts begin."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(one), len(other)))


def _sha256(text: str) -> str:
    from hashlib import sha256

    return sha256(text.encode()).hexdigest()


def _original(records: Path, path: Path, now: str | None) -> str | None:
    """Returns the settings without the hooks; None for no file. Raises ValueError.

    They are those before the installation, byte for byte, if nothing has changed since.
    """
    record = _known(records).get(_name(path))
    if now is None:
        return None
    if record is not None and record.sha256 == _sha256(now):
        text = now[: record.start] + record.text + now[record.end :]
        return None if record.is_new else text
    text = _without_toml(now) if path.suffix == ".toml" else _without_json(now)
    _check(path, text, now)
    return text


# ------------------------------------------------------------------------- JSON, TOML


def _is_ours(handler: Any) -> bool:
    line = handler.get("command") if isinstance(handler, dict) else None
    return isinstance(line, str) and _OURS.search(line) is not None


def _with_json(client: HookClient, text: str, hooks: list[tuple[str, dict[str, Any]]]) -> str:
    if not text.strip("\ufeff\r\n\t "):
        text = "{}\n"
    for member, value in client.first.items():
        if member not in jsonc.parse(text):
            text = jsonc.put(text, (member,), value)
    for event, handler in hooks:
        text = jsonc.append(text, ("hooks", event), _group(client, handler))
    return text


def _group(client: HookClient, handler: dict[str, Any]) -> dict[str, Any]:
    return handler if client.is_flat else {"hooks": [handler]}


def _without_json(text: str) -> str:
    """Returns the text without our handlers, and without what held nothing else."""
    while (place := _place_of_ours(_parsed(text))) is not None:
        text = jsonc.drop(text, place)
    return text


def _parsed(text: str) -> Any:
    return jsonc.parse(text) if text.strip("\ufeff\r\n\t ") else {}


def _place_of_ours(settings: Any) -> tuple[str | int, ...] | None:
    """Returns the place of one of our handlers, or of the largest value that holds only that."""
    hooks = settings.get("hooks", {})
    for event, groups in hooks.items():
        for number, group in enumerate(groups):
            handlers = group.get("hooks") if isinstance(group, dict) else None
            listed = handlers if isinstance(handlers, list) else [group]
            at = next((n for n, handler in enumerate(listed) if _is_ours(handler)), None)
            if at is None:
                continue
            if len(listed) > 1:
                return "hooks", event, number, "hooks", at
            if len(groups) > 1:
                return "hooks", event, number
            return ("hooks", event) if len(hooks) > 1 else ("hooks",)
    return None


def _with_toml(text: str, hooks: list[tuple[str, dict[str, Any]]]) -> str:
    """Returns the text with our tables at its end, between two comments that mark them."""
    newline = "\r\n" if "\r\n" in text else "\n"
    lines = [_BEGIN]
    for event, handler in hooks:
        lines += [f"[[hooks.{event}]]", f"[[hooks.{event}.hooks]]"]
        lines += [
            f"{name} = {msgspec.json.encode(value).decode()}" for name, value in handler.items()
        ]
    block = newline.join([*lines, _END, ""])
    gap = "" if not text else newline if text.endswith("\n") else newline * 2
    return f"{text}{gap}{block}"


def _without_toml(text: str) -> str:
    begin, end = text.find(_BEGIN), text.find(_END)
    if begin < 0 or end < begin:
        return text
    rest = text[end + len(_END) :]
    before = text[:begin]
    blank = re.search(r"(?<=\n)\r?\n\Z", before)
    return (before[: blank.start()] if blank else before) + rest.removeprefix("\r").removeprefix(
        "\n"
    )


def _check(path: Path, without: str, after: str) -> None:
    """Raises ValueError if the two differ in more than our hooks, or if ours can't be told."""
    read = tomllib.loads if path.suffix == ".toml" else _parsed
    old, new = read(without), read(after)
    if not isinstance(old, dict):
        raise ValueError("it is no object")
    if _others(old) != _others(new):
        raise ValueError("other settings would change with it")
    if _place_of_ours(old) is not None:
        raise ValueError("hooks of kbproc stand apart from those that it has written")


def _others(settings: dict[str, Any]) -> Any:
    """Returns the settings without our handlers, and without what holds nothing else."""
    hooks: dict[str, list[Any]] = {}
    for event, groups in settings.get("hooks", {}).items():
        if not isinstance(groups, list):  # such as Codex's table `state`
            hooks[event] = groups
            continue
        hooks[event] = [other for group in groups if (other := _other(group)) is not None]
    rest = {name: value for name, value in settings.items() if name not in {"hooks", "version"}}
    return rest, {event: groups for event, groups in hooks.items() if groups}


def _other(group: Any) -> Any:
    """Returns a group without our handlers; None if there is nothing else in it."""
    if _is_ours(group):
        return None
    handlers = group.get("hooks") if isinstance(group, dict) else None
    if not isinstance(handlers, list):
        return group
    others = [handler for handler in handlers if not _is_ours(handler)]
    return {**group, "hooks": others} if others or not handlers else None
