"""Help, made from the declarations.

Owns: the overview, a noun's commands, one command's page, at 80 columns.
Refuses to know: how flags are read, and JSON help (describe.py).
"""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from kbproc import __version__
from kbproc.base.errors import ERRORS
from kbproc.calls.flags import GLOBAL_FLAGS, Flag, flags_of
from kbproc.calls.method import Method, Registry
from kbproc.shell.arguments import argv_of, command_of
from kbproc.shell.commands import OWN_COMMANDS, OWN_EXAMPLES

WIDTH = 80
_GENERAL = "general"


def overview(registry: Registry) -> str:
    """`kbproc --help`: every command, by noun."""
    lines = [
        f"kbproc {__version__}: a knowledge base that agents run as a coprocess.",
        "",
        "Usage: kbproc COMMAND [ARGUMENTS] [FLAGS]",
    ]
    for noun, methods in by_noun(registry).items():
        lines += ["", noun.capitalize()]
        lines += _rows((_told_name(method), method.summary) for method in methods)
    lines += ["", "Shell"]
    lines += _rows((name, summary) for name, (_, summary) in OWN_COMMANDS.items())
    lines += [
        "",
        "Example",
        '  kbproc add docs && kbproc search "install git" --limit 5',
        "",
        "kbproc COMMAND --help tells more; KBPROC_AGENT_HELP=1 makes help JSON.",
    ]
    return _joined(lines)


def of_noun(noun: str, methods: Iterable[Method]) -> str:
    """`kbproc doc --help`."""
    lines = [f"Usage: kbproc {noun} COMMAND [ARGUMENTS] [FLAGS]", ""]
    lines += _rows((_told_name(method), method.summary) for method in methods)
    return _joined(lines)


def of_own_noun(noun: str, names: Iterable[str]) -> str:
    """`kbproc profile --help`."""
    listed = list(names)
    lines = [f"Usage: kbproc {noun} COMMAND [ARGUMENTS] [FLAGS]", ""]
    lines += _rows((name, OWN_COMMANDS[name][1]) for name in listed)
    lines += ["", "Examples", *(f"  {OWN_EXAMPLES[name][0]}" for name in listed)]
    return _joined(lines)


def by_noun(registry: Registry) -> dict[str, list[Method]]:
    """Noun → its methods; those that are one word are general."""
    groups: dict[str, list[Method]] = {_GENERAL: []}
    for method in registry.methods.values():
        noun, dot, _ = method.name.partition(".")
        groups.setdefault(noun if dot else _GENERAL, []).append(method)
    return groups


def of_method(method: Method) -> str:
    """One command's page."""
    flags = flags_of(method)
    positional = [flag for name in method.positional for flag in flags if flag.param == name]
    named = [flag for flag in flags if not flag.positional]
    lines = [f"Risk: {method.name} (destructive)", ""] if method.kind == "destructive" else []
    lines += _wrapped(f"{command_of(method)}: {method.summary}")
    lines += ["", *_wrapped(method.when_to_use), "", *_usage(method, positional)]
    lines += _flag_section("Arguments", positional, lambda flag: str(flag.param).upper())
    lines += _flag_section("Flags", named, _flag_name)
    lines += _everywhere({flag.name for flag in flags})
    lines += ["", "Examples", *_examples(method)]
    lines += ["", "Errors (exit code)", *_errors(method)]
    return _joined(lines)


def of_own(name: str, flags: Iterable[Flag]) -> str:
    """The page of one of the shell's own commands."""
    arguments, summary = OWN_COMMANDS[name]
    lines = [f"kbproc {name}: {summary}", "", f"Usage: kbproc {name} {arguments}".rstrip()]
    lines += _flag_section("Flags", list(flags), _flag_name)
    lines += _everywhere(set())
    lines += ["", "Examples", *(f"  {example}" for example in OWN_EXAMPLES[name])]
    return _joined(lines)


# ---------------------------------------------------------------------- parts


def _usage(method: Method, positional: list[Flag]) -> list[str]:
    words = [_slot(flag) for flag in positional]
    lines = [f"Usage: {' '.join([command_of(method), *words, '[FLAGS]'])}"]
    if method.alias:
        lines.append(f"Short:  {' '.join(['kbproc', method.alias, *words, '[FLAGS]'])}")
    return lines


def _slot(flag: Flag) -> str:
    name = str(flag.param).upper() + (" …" if flag.type == "array" else "")
    return name if flag.required else f"[{name}]"


def _flag_section(title: str, flags: list[Flag], named: Any) -> list[str]:
    if not flags:
        return []
    return ["", title, *_rows((named(flag), _flag_help(flag)) for flag in flags)]


def _everywhere(taken: set[str]) -> list[str]:
    flags = [flag for flag in GLOBAL_FLAGS if flag.name not in taken]
    return _flag_section("Everywhere", flags, _flag_name)


def _flag_name(flag: Flag) -> str:
    if flag.type == "boolean":
        return flag.name.replace("--", "--[no-]", 1) if flag.default is True else flag.name
    if flag.enum and flag.items is None:
        return f"{flag.name} {'|'.join(str(value) for value in flag.enum)}"
    return f"{flag.name} {_placeholder(flag)}"


def _placeholder(flag: Flag) -> str:
    if flag.items is not None:
        one = "N" if flag.items == "integer" else "TEXT"
        return f"{one}[,{one}]"
    kinds = {"integer": "N", "number": "X", "object": "KEY=VALUE|JSON", "json": "JSON"}
    return kinds.get(flag.type, "TEXT")


def _flag_help(flag: Flag) -> str:
    told = [flag.help or str(flag.param).rpartition(".")[2].replace("_", " ")]
    if flag.enum and flag.items is not None:
        told.append(f"of {', '.join(str(value) for value in flag.enum)}")
    limits = _limits(flag)
    if limits:
        told.append(limits)
    if flag.required:
        told.append("required")
    if flag.default not in (None, [], {}, "", False):
        told.append(f"default {_spelt(flag.default)}")
    if flag.env:
        told.append(f"env {flag.env}")
    return "; ".join(told)


def _spelt(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _limits(flag: Flag) -> str:
    if flag.minimum is not None or flag.maximum is not None:
        return _between(flag.minimum, flag.maximum, "")
    unit = " of them" if flag.items is not None else " characters"
    if flag.type == "object" or (flag.min_length is None and flag.max_length is None):
        return ""
    return _between(flag.min_length, flag.max_length, unit)


def _between(low: float | None, high: float | None, unit: str) -> str:
    if high is None or high >= 2**53:
        return f"at least {low}{unit}"
    if low is None:
        return f"at most {high}{unit}"
    return f"{low} to {high}{unit}"


def _examples(method: Method) -> Iterator[str]:
    for example in method.examples:
        exit = f" (exit {example.exit})" if example.exit else ""
        yield from _wrapped(f"# {example.what}{exit}", "  ")
        yield f"  {shlex.join(argv_of(method, example.params))}"


def _errors(method: Method) -> Iterator[str]:
    told = ", ".join(f"{name} ({ERRORS[name].exit})" for name in method.all_errors)
    return _wrapped(told, "  ")


def _told_name(method: Method) -> str:
    name = method.name.replace(".", " ")
    return f"{name} ({method.alias})" if method.alias else name


def _rows(rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Two columns; a name that is too long has its line to itself."""
    for name, text in rows:
        lead = f"  {name:<22} "
        indent = " " * 25
        if len(lead) > len(indent):
            yield f"  {name}"
            lead = indent
        yield from textwrap.wrap(
            text, WIDTH, initial_indent=lead, subsequent_indent=indent, break_on_hyphens=False
        )


def _wrapped(text: str, indent: str = "") -> Iterator[str]:
    yield from textwrap.wrap(
        text, WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
    )


def _joined(lines: Iterable[str]) -> str:
    return "\n".join(lines) + "\n"
