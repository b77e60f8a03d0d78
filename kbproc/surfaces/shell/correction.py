"""The command line that was probably meant.

Owns: taking a misspelt command, flag or profile for the one name that is near.
Refuses to know: what was wrong with a command line, which the error says.
"""

from __future__ import annotations

from kbproc.base.errors import KbprocError, Retry
from kbproc.base.suggest import closest
from kbproc.calls.flags import common_flags, flags_of
from kbproc.calls.registry import Registry
from kbproc.calls.typed import command_of
from kbproc.shell.arguments import leading_flags, near_flag, parse
from kbproc.shell.commands import find_command
from kbproc.shell.params import params_of


def correct(error: KbprocError, argv: list[str], registry: Registry) -> None:
    """Puts into the error the request that leads on, if one alone is near."""
    corrected = _corrected(error, argv)
    if corrected is None or error.retry is not None:
        return
    try:
        leading, words = leading_flags(corrected)
        method, rest = find_command(registry, words)
        flags = [*common_flags(method), *flags_of(method)]
        parsed = parse(command_of(method), flags, [*leading, *rest])
        params = params_of(method, parsed, _no_stdin)
    except KbprocError:  # more is wrong with it: no one request leads on
        return
    error.retry = Retry(method=method.name, params=params, argv=["kbproc", *corrected])


def _corrected(error: KbprocError, argv: list[str]) -> list[str] | None:
    if error.valid_values is None or error.type not in _MISSPELT or error.field is None:
        return None
    valid = [value for value in error.valid_values if isinstance(value, str)]
    if error.type == "profile.not_found":
        at, typed = _after("--profile", argv), []
    else:
        typed = error.field.split()
        at = _place_of(typed, argv)
    if at is None:
        return None
    typed = typed or [argv[at]]
    like = _meant(" ".join(typed), valid)
    if like is None:
        return None
    _, equals, value = argv[at].partition("=") if like.startswith("-") else ("", "", "")
    words = [f"{like}={value}"] if equals else like.split()
    return [*argv[:at], *words, *argv[at + len(typed) :]]


def _meant(name: str, valid: list[str]) -> str | None:
    """Of commands of one noun, only the verbs are compared; a verb alone is nobody's guess."""
    if name.startswith("-"):
        return near_flag(name, valid)
    noun, space, verb = name.partition(" ")
    if not space:
        of = [other for other in valid if other.endswith(f" {name}")]
        return of[0] if len(of) == 1 else None if of else closest(name, valid)
    like = closest(verb, [other.partition(" ")[2] for other in valid])
    return None if like is None else f"{noun} {like}"


_MISSPELT = frozenset({"input.unknown_method", "input.invalid_params", "profile.not_found"})


def _after(flag: str, argv: list[str]) -> int | None:
    return argv.index(flag) + 1 if flag in argv[:-1] else None


def _place_of(typed: list[str], argv: list[str]) -> int | None:
    """Where these words stand in the command line."""
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
