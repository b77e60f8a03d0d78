"""Corrects a command line with a misspelt command, flag or profile, if one name is near."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbproc.base.errors import KbprocError, Retry
from kbproc.base.suggest import closest
from kbproc.methods.calls.flags import Described, command_of, common_flags, flags_of
from kbproc.surfaces.shell.arguments import leading_flags, near_flag, parse
from kbproc.surfaces.shell.commands import find_command
from kbproc.surfaces.shell.params import params_of

if TYPE_CHECKING:
    from kbproc.methods.calls.registry import Names


def correct(error: KbprocError, argv: list[str], registry: Names[Described]) -> None:
    """Adds the corrected request to the error as its retry, if exactly one is near."""
    corrected = _corrected(error, argv)
    if corrected is None or error.retry is not None:
        return
    try:
        leading, words = leading_flags(corrected)
        method, rest = find_command(registry, words)
        flags = [*common_flags(method), *flags_of(method)]
        parsed = parse(command_of(method), flags, [*leading, *rest])
        params = params_of(method, parsed, _no_stdin)
    except KbprocError:  # because the command line has a second mistake
        return
    error.retry = Retry(method=method.name, params=params, argv=["kbproc", *corrected])


def _corrected(error: KbprocError, argv: list[str]) -> list[str] | None:
    if error.valid_values is None or error.type not in _MISSPELT or error.field is None:
        return None
    valid = [value for value in error.valid_values if isinstance(value, str)]
    if error.type == "profile.not_found":
        at, words = _after("--profile", argv), []
    else:
        words = error.field.split()
        at = _place_of(words, argv)
    if at is None:
        return None
    words = words or [argv[at]]
    like = _nearest(" ".join(words), valid)
    if like is None:
        return None
    _, equals, value = argv[at].partition("=") if like.startswith("-") else ("", "", "")
    replacement = [f"{like}={value}"] if equals else like.split()
    return [*argv[:at], *replacement, *argv[at + len(words) :]]


def _nearest(name: str, valid: list[str]) -> str | None:
    """Returns the nearest name; verbs are compared within their noun. None if none is near."""
    if name.startswith("-"):
        return near_flag(name, valid)
    noun, space, verb = name.partition(" ")
    if not space:
        commands = [other for other in valid if other.endswith(f" {name}")]
        if commands:
            return commands[0] if len(commands) == 1 else None
        return closest(name, valid)
    like = closest(verb, [other.partition(" ")[2] for other in valid])
    return None if like is None else f"{noun} {like}"


_MISSPELT = frozenset({"input.unknown_method", "input.invalid_params", "profile.not_found"})


def _after(flag: str, argv: list[str]) -> int | None:
    return argv.index(flag) + 1 if flag in argv[:-1] else None


def _place_of(typed: list[str], argv: list[str]) -> int | None:
    """Returns the index of these words in the command line; None if they are absent."""
    for at, word in enumerate(argv):
        if word == "--":
            return None
        if argv[at : at + len(typed)] == typed:
            return at
        if len(typed) == 1 and typed[0].startswith("-") and word.startswith(f"{typed[0]}="):
            return at
    return None


def _no_stdin() -> bytes:
    raise KbprocError("input.invalid_params", "stdin is not read for a guess.")
