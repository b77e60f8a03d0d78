"""Makes the help pages from the declarations, at 80 columns or as JSON.

The pages are the overview, a noun's commands, a command, and an error.
"""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from kbproc import __version__
from kbproc.base.errors import ERRORS, EXIT_CODES, RETRYABLE_WORDS, ErrorType
from kbproc.methods.calls.flags import (
    Described,
    Flag,
    argv_of,
    command_of,
    common_flags,
    flags_of,
    usage_of,
)
from kbproc.surfaces.shell.commands import (
    OWN_COMMANDS,
    Command,
    find_command,
    methods_by_noun,
    nouns,
    own_command,
    own_commands_of,
)
from kbproc.surfaces.shell.moments import EXAMPLES

if TYPE_CHECKING:
    from kbproc.base.settings.config import Config
    from kbproc.methods.calls.registry import Names

WIDTH = 80
_BEGIN = (
    ("start FOLDER", "Read it, connect the agents, show the first answers."),
    ("add FOLDER", "Read files and folders; later again what has changed."),
    ('search "install git"', "Find passages by words and by meaning."),
    ("list", "List the documents; info ID shows one, tags all tags."),
    ("status", "Count what is there; doctor tells what is wrong."),
)
_TEXTS = "A TEXT can be - for stdin or @FILE for a file; '\\-' and '\\@' begin one with that sign."


def page(registry: Names[Described], words: list[str], config: Config) -> str:
    """Returns the help about `words`; without words, about everything.

    The help is for people, or JSON if the settings say so. Raises input.unknown_method.
    """
    names = [word for word in words if not word.startswith("-")]
    if not names:
        return _as_json(registry, config) if config.agent_help else _overview(registry)
    if names[0] in ERRORS and not config.agent_help:
        return _joined(_of_error(ERRORS[names[0]]))
    subject = _subject(registry, names)
    if config.agent_help:
        return _json(_as_data(subject))
    if isinstance(subject, list):
        return _of_noun(names[0], subject)
    if isinstance(subject, Command):
        return _of_own_command(subject)
    return _of_method(subject)


def _subject(
    registry: Names[Described], names: list[str]
) -> Described | Command | list[Described | Command]:
    """Returns one command, or all commands of a noun."""
    own, _ = own_command(names)
    if own is not None:
        return own
    noun = names[0]
    if len(names) == 1 and (owned := own_commands_of(noun)):
        return [*owned]
    if len(names) == 1 and noun in nouns(registry):
        return [*methods_by_noun(registry)[noun]]
    return find_command(registry, names)[0]


def _overview(registry: Names[Described]) -> str:
    """Returns the page of `kbproc --help`: every command, by noun."""
    lines = [
        f"kbproc {__version__}: a knowledge base that agents run as a coprocess.",
        "",
        "Usage: kbproc COMMAND [ARGUMENTS] [FLAGS]",
        "",
        "Begin with",
        *_rows(_BEGIN),
    ]
    for noun, methods in methods_by_noun(registry).items():
        lines += ["", noun.capitalize()]
        lines += _rows((_name_of(method), method.summary) for method in methods)
    lines += ["", "Shell"]
    lines += _rows((command.name, command.summary) for command in OWN_COMMANDS.values())
    lines += [
        "",
        "kbproc COMMAND --help tells more; KBPROC_AGENT_HELP=1 makes help JSON.",
    ]
    return _joined(lines)


def _of_noun(noun: str, commands: list[Described | Command]) -> str:
    """Returns the page of a noun, such as `kbproc doc --help`."""
    lines = [f"Usage: kbproc {noun} COMMAND [ARGUMENTS] [FLAGS]", ""]
    lines += _rows((_name_of(command), command.summary) for command in commands)
    own = [command for command in commands if isinstance(command, Command)]
    if own:
        lines += ["", "Examples", *(f"  {command.examples[0]}" for command in own)]
    return _joined(lines)


def _of_method(method: Described) -> str:
    """Returns the page of a method."""
    flags = flags_of(method)
    positional = [flag for name in method.positional for flag in flags if flag.param == name]
    named = [flag for flag in flags if not flag.positional]
    lines = [f"Risk: {method.name} (destructive)", ""] if method.kind == "destructive" else []
    lines += _wrapped(f"{command_of(method)}: {method.summary}")
    lines += ["", *_wrapped(method.when_to_use), "", usage_of(method)]
    if method.alias:
        lines.append(usage_of(method, f"kbproc {method.alias}").replace("Usage:", "Short:"))
    lines += _undoing(method)
    lines += _flag_section("Arguments", positional, lambda flag: str(flag.param).upper())
    lines += _flag_section("Flags", named, _flag_name)
    lines += _flag_section("Of most commands", common_flags(method), _flag_name)
    if any(flag.is_text for flag in flags):
        lines += ["", *_wrapped(_TEXTS)]
    if any(flag.is_moment for flag in flags):
        lines += ["", *_wrapped(f"TIME may be said in words: {EXAMPLES}.")]
    lines += ["", "Examples", *_examples(method)]
    lines += ["", "Errors (exit code)", *_errors(method)]
    return _joined(lines)


def _of_error(row: ErrorType) -> Iterator[str]:
    """Yields the lines of an error's page, such as `kbproc help input.invalid_params`."""
    yield f"{row.type}: {row.when}"
    yield ""
    retryable = RETRYABLE_WORDS[row.retryable]
    yield f"Exit {row.exit}: {EXIT_CODES[row.exit]}. Worth another try: {retryable}."
    yield ""
    yield from _wrapped(row.hint)


def _of_own_command(command: Command) -> str:
    """Returns the page of one of the shell's own commands."""
    usage = f"Usage: kbproc {command.name} {command.usage}".rstrip()
    lines = [f"kbproc {command.name}: {command.summary}", "", usage]
    lines += _flag_section("Flags", list(command.flags), _flag_name)
    lines += _flag_section("Of most commands", command.common, _flag_name)
    lines += ["", "Examples", *(f"  {example}" for example in command.examples)]
    return _joined(lines)


# ----------------------------------------------------------------------- as JSON


def _as_json(registry: Names[Described], config: Config) -> str:
    from kbproc.methods.calls import describe

    commands = {command.name: command.summary for command in OWN_COMMANDS.values()}
    profiles = list(config.profile_names)
    return _json({**describe.index(registry), "commands": commands, "profiles": profiles})


def _as_data(subject: Described | Command | list[Described | Command]) -> Any:
    """Returns help as JSON data, as brief as the answer of `describe`."""
    from kbproc.methods.calls import describe

    if isinstance(subject, list):
        return [_line(command) for command in subject]
    if not isinstance(subject, Command):
        return describe.brief(subject)
    flags = {flag.name: flag.help for flag in (*subject.flags, *subject.common)}
    return {**_line(subject), "flags": flags, "examples": list(subject.examples)}


def _line(command: Described | Command) -> dict[str, Any]:
    from kbproc.methods.calls import describe

    if not isinstance(command, Command):
        return describe.line(command)
    usage = f"kbproc {command.name} {command.usage}".rstrip()
    return {"name": command.name, "summary": command.summary, "usage": usage}


def _json(data: Any) -> str:
    return msgspec.json.encode(data).decode() + "\n"


# ---------------------------------------------------------------------- parts


def _flag_section(title: str, flags: list[Flag], name_of: Any) -> list[str]:
    if not flags:
        return []
    return ["", title, *_rows((name_of(flag), _flag_help(flag)) for flag in flags)]


def _flag_name(flag: Flag) -> str:
    if flag.type == "boolean":
        return flag.name.replace("--", "--[no-]", 1) if flag.default is True else flag.name
    if flag.enum and flag.items is None:
        return f"{flag.name} {'|'.join(str(value) for value in flag.enum)}"
    return f"{flag.name} {_placeholder(flag)}"


def _placeholder(flag: Flag) -> str:
    if flag.is_moment:
        return "TIME" if flag.type == "string" else "TIME|SEQ"
    if flag.is_records:
        return "JSON|@FILE|-"
    if flag.items is not None:
        item = "N" if flag.items == "integer" else "VALUE"
        return f"{item}[,{item}]"
    kinds = {"integer": "N", "number": "X", "object": "KEY=VALUE|JSON", "json": "JSON"}
    return kinds.get(flag.type, "TEXT" if flag.is_text else "VALUE")


def _flag_help(flag: Flag) -> str:
    parts = [flag.help or str(flag.param).rpartition(".")[2].replace("_", " ")]
    if flag.enum and flag.items is not None:
        parts.append(f"of {', '.join(str(value) for value in flag.enum)}")
    limits = _limits(flag)
    if limits:
        parts.append(limits)
    if flag.required:
        parts.append("required")
    if flag.default not in (None, [], {}, "", False):
        parts.append(f"{_spelt(flag.default)} if left out")
    if flag.env:
        parts.append(f"env {flag.env}")
    return "; ".join(parts)


def _undoing(method: Described) -> Iterator[str]:
    """Yields the line that names the commands that take a write back."""
    if method.undone_by is not None:
        commands = ", ".join(f"kbproc {name.replace('.', ' ')}" for name in method.undone_by)
        yield f"Undo:  {commands or 'nothing takes it back'}"


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


def _examples(method: Described) -> Iterator[str]:
    for example in method.examples:
        exit = f" (exit {example.exit})" if example.exit else ""
        yield from _wrapped(f"# {example.what}{exit}", "  ")
        yield f"  {shlex.join(argv_of(method, example.params))}"


def _errors(method: Described) -> Iterator[str]:
    types = ", ".join(f"{name} ({ERRORS[name].exit})" for name in method.all_errors)
    return _wrapped(types, "  ")


def _name_of(command: Described | Command) -> str:
    """Returns the command as a person types it, and its alias."""
    name = command.name.replace(".", " ")
    return (
        f"{name} ({command.alias})" if not isinstance(command, Command) and command.alias else name
    )


def _rows(rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yields lines of two columns; a name that is too long has its own line."""
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
