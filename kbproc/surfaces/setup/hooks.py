"""Adds the hooks to the settings of coding agents, and removes them.

While the settings are as an installation has left them, a removal restores every byte of what was
there before; otherwise it removes the hooks alone.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from kbproc.base.clients import BY_NAME, HOOKS, TOOL, Hooks, Places
from kbproc.base.errors import KbprocError
from kbproc.base.paths import absolute
from kbproc.base.values import decoder
from kbproc.surfaces.hooks.deadline import COUNT, RECORD, RECORDED, deadline_of, is_deadline
from kbproc.surfaces.hooks.options import options_of
from kbproc.surfaces.hooks.protocol import NAMES
from kbproc.surfaces.setup.change import (
    Change,
    Flags,
    InstallationRecord,
    editor_of,
    parsed,
    program_words,
    text_of,
    unknown_client,
)

_PATIENCE_S = 4  # seconds beyond the deadline, after which a client ends a hook
_FOR_PROMPT, _FOR_START = "--tokens", "--start-tokens"


def find(name: str) -> Hooks:
    """Returns the hooks of the client of that name. Raises input.invalid_params."""
    if name in HOOKS:
        return HOOKS[name]
    message = f"The hooks of a client {name!r} are not known."
    hint = "Any other client with hooks like those of Claude Code can run kbproc hook EVENT."
    raise unknown_client(name, HOOKS, message=message, hint=hint)


def path_of(name: str, places: Places) -> Path:
    """Returns the client's file; an earlier installation goes on where it is.

    Raises input.invalid_params.
    """
    hooks, client = find(name), BY_NAME[name]
    path = client.path(hooks.file, places)
    other = client.path(hooks.other, places) if hooks.other else path
    return other if other.exists() and not _holds_ours(path) else path


def _holds_ours(path: Path) -> bool:
    try:
        return _place_of_ours(parsed(editor_of(path), text_of(path) or "")) is not None
    except (ValueError, TypeError, AttributeError, RecursionError):
        return False


def commands(hooks: Hooks, flags: Flags) -> dict[str, str]:
    """Returns event → command line, with the flags that concern it. Raises input.invalid_params."""
    lines: dict[str, str] = {}
    for event in (*hooks.events, *([TOOL] if hooks.tools else [])):
        words = [event, *_flags_of(event, flags)]
        options_of(words)  # checks them
        lines[event] = shlex.join([*program_words(portable=False), "hook", *words])
    return lines


def _flags_of(event: str, flags: Flags) -> Iterator[str]:
    budget = {"prompt": _FOR_PROMPT, "session-start": _FOR_START}.get(event)
    for name, values in flags.items():
        value = str(values[-1])
        if name == "--deadline-ms" and event != TOOL:
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
        elif name == COUNT or (name == RECORD and event in RECORDED):
            yield name
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


_restorations = decoder(dict[str, HookRestoration])


def _record(places: Places) -> InstallationRecord:
    return InstallationRecord(path=places.records / "hooks-installed.json", decoder=_restorations)


def installed(name: str, flags: Flags, places: Places) -> Change:
    """Returns the change that adds the hooks, in place of those of an earlier installation.

    Raises input.invalid_params for flags that no hook takes, and settings that can't be read.
    """
    hooks, record = find(name), _record(places)
    path, lines = path_of(name, places), commands(hooks, flags)
    with _readable(name, path):
        before = text_of(path)
        original = _original(record, path, before)
        after = _with_ours(hooks, path, original or "", lines)
        _check(path, original or "", after)
    member = _restoration(original, after)
    return Change(path=path, before=before, after=after, record=record, member=member)


def removed(name: str, places: Places) -> Change:
    """Returns the change that removes the hooks. Raises input.invalid_params."""
    path, record = path_of(name, places), _record(places)
    with _readable(name, path):
        before = text_of(path)
        after = _original(record, path, before)
    return Change(path=path, before=before, after=after, record=record)


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


def _original(record: InstallationRecord, path: Path, now: str | None) -> str | None:
    """Returns the settings without the hooks; None for no file. Raises ValueError.

    They are those before the installation, byte for byte, if nothing has changed since.
    """
    if now is None:
        return None
    before: HookRestoration | None = record.of(path)
    if before is not None and before.sha256 == _sha256(now):
        text = now[: before.start] + before.text + now[before.end :]
        return None if before.is_new else text
    text = _without_ours(path, now)
    _check(path, text, now)
    return text


# ----------------------------------------------------------------------------- changing


def _is_ours(handler: Any) -> bool:
    """Returns whether the handler's command is one that an installation writes, and nothing else.

    A person's own command may run kbproc, too.
    """
    line = handler.get("command") if isinstance(handler, dict) else None
    if not isinstance(line, str):
        return False
    try:
        words = shlex.split(line)
        place = words.index("hook")
        options = options_of(words[place + 1 :])
    except (ValueError, KbprocError):
        return False
    program = [Path(words[0]).name, *words[1:place]]
    is_program = program == ["kbproc"] or program[1:] == ["-m", "kbproc"]
    return is_program and options.event in NAMES and shlex.join(words) == line


def _with_ours(hooks: Hooks, path: Path, text: str, lines: dict[str, str]) -> str:
    """Returns the text with our handlers; `lines`: event → command line."""
    editor = editor_of(path)
    settings = parsed(editor, text)
    if hooks.first.keys() - settings.keys():
        text = editor.change(text, (), {**hooks.first, **settings})
    for event, line in lines.items():
        handler = hooks.handler(line, _seconds(line))
        for name, matcher in hooks.places(event).items():
            text = editor.append(text, ("hooks", name), hooks.group(handler, matcher))
    return text


def _without_ours(path: Path, text: str) -> str:
    """Returns the text without our handlers, and without what held nothing else."""
    editor = editor_of(path)
    while (place := _place_of_ours(parsed(editor, text))) is not None:
        text = editor.drop(text, place)
    return text


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


def _check(path: Path, without: str, after: str) -> None:
    """Raises ValueError if the two differ in more than our hooks."""
    editor = editor_of(path)
    if _others(parsed(editor, without)) != _others(parsed(editor, after)):
        raise ValueError("other settings would change with it")


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
