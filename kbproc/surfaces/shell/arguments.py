"""What a command line says: flags, positionals, and the options that every command has.

Owns: reading flags by their declarations; what a global flag changes of the settings;
timeout and approval; which output a command gets.
Refuses to know: which command it is, and what flags mean as params (params.py).
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import msgspec
from msgspec import Struct

from kbproc.base.errors import KbprocError
from kbproc.base.paths import absolute
from kbproc.base.suggest import closest, did_you_mean, ranked
from kbproc.calls.flags import GLOBAL_FLAGS, Flag
from kbproc.calls.typed import TRUTH, is_number
from kbproc.settings import config as settings
from kbproc.settings.config import Config, Origin
from kbproc.shell.printing.formats import Jq, Ndjson, Output

_SHORT = {"-h": "--help", "-y": "--yes"}
_WHY_NOT = {
    "--dry-run": "Only what changes the store can tell what it would change. Leave --dry-run out.",
    "--yes": "Only destructive commands ask for approval. Leave --yes out.",
    "--all": "Only lists have pages. Leave --all out.",
    "--no-wait": "Only what adds texts embeds them. Leave --no-wait out.",
}
_GLOBALS = {flag.name: flag for flag in GLOBAL_FLAGS}


class Parsed(Struct, frozen=True):
    """`given`: flag name → its texts, or booleans, in the order they came."""

    given: dict[str, list[str | bool]]
    positionals: list[str]

    def last(self, name: str) -> Any:
        """The flag's last value; None if it was not given."""
        values = self.given.get(name)
        return values[-1] if values else None


def usage_error(message: str, field: str, **more: Any) -> KbprocError:
    return KbprocError("input.invalid_params", message, field=field, **more)


def parse(command: str, flags: Iterable[Flag], args: list[str]) -> Parsed:
    """Raises input.invalid_params for unknown, incomplete and contradicting flags."""
    known = {flag.name: flag for flag in flags}
    given: dict[str, list[str | bool]] = {}
    positionals: list[str] = []
    rest = iter(args)
    for arg in rest:
        if arg == "--":
            positionals += rest
        elif not _is_flag(arg):
            positionals.append(arg)
        else:
            name, value = _one_flag(command, known, arg, rest)
            given.setdefault(name, []).append(value)
    for name in given:
        _refuse_contradiction(known[name], given)
    return Parsed(given, positionals)


def _is_flag(arg: str) -> bool:
    """Words to leave out of a search and negative numbers are no flags."""
    name = arg.partition("=")[0]
    return arg.startswith("-") and arg != "-" and " " not in name and not is_number(arg)


def _one_flag(
    command: str, known: dict[str, Flag], arg: str, rest: Iterator[str]
) -> tuple[str, str | bool]:
    typed, equals, value = arg.partition("=")
    name = _SHORT.get(typed, typed.replace("_", "-"))
    opposite = known.get("--" + name.removeprefix("--no-"))
    if name not in known and opposite is not None and not opposite.takes_value and not equals:
        return opposite.name, False
    flag = known.get(name)
    if flag is None:
        raise _unknown_flag(command, known, typed)
    if not flag.takes_value:
        return name, _switch(flag, value) if equals else True
    if not equals:
        value = _next_value(name, known, rest)
    return name, value


def refuse_meaningless(command: str, known: Collection[str], given: Iterable[str]) -> None:
    """Raises input.invalid_params for a flag of other commands."""
    for name in given:
        if name not in known:
            raise _meaningless(command, name)


def _meaningless(command: str, name: str) -> KbprocError:
    return usage_error(
        f"{name} means nothing for {command}.", name, hint=_WHY_NOT.get(name, f"Leave {name} out.")
    )


def _unknown_flag(command: str, known: dict[str, Flag], typed: str) -> KbprocError:
    if typed in _GLOBALS:
        return _meaningless(command, typed)
    return usage_error(
        f"{command} has no flag {typed}.",
        typed,
        valid_values=ranked(typed, known),
        hint=f"{did_you_mean(near_flag(typed, known))}See {command} --help.",
    )


def near_flag(typed: str, known: Iterable[str]) -> str | None:
    """The one flag that was probably meant; nobody is led to approve what they did not ask for."""
    bare = {name.lstrip("-"): name for name in known if name not in {"--yes", "--confirm"}}
    like = closest(typed.lstrip("-"), bare)  # all names have the dashes in common
    return None if like is None else bare[like]


def _switch(flag: Flag, value: str) -> str | bool:
    """`--prune=false`; what is no truth value is passed on (`--yes=bulk`)."""
    return TRUTH.get(value.lower(), value)


def _next_value(name: str, known: dict[str, Flag], rest: Iterator[str]) -> str:
    value = next(rest, None)
    if value is None or value.split("=")[0] in known:
        raise usage_error(
            f"{name} needs a value.", name, hint=f"Write {name} VALUE, or {name}=VALUE."
        )
    return value


def _refuse_contradiction(flag: Flag, given: dict[str, list[str | bool]]) -> None:
    for other in flag.mutually_exclusive:
        if other in given:
            raise usage_error(
                f"{flag.name} and {other} exclude each other.",
                flag.name,
                hint="Leave one of them out.",
            )


# -------------------------------------------- before it is known which command is meant


def leading_flags(argv: list[str]) -> tuple[list[str], list[str]]:
    """Splits off the flags before the command's first word."""
    at = 0
    while at < len(argv) and argv[at].startswith("-"):
        flag = _GLOBALS.get(argv[at].partition("=")[0])
        at += 2 if flag is not None and flag.takes_value and "=" not in argv[at] else 1
    return argv[:at], argv[at:]


def value_in(argv: list[str], flag: str) -> str | None:
    """A flag's last value, wherever the flag stands."""
    found = None
    for arg, following in zip(argv, [*argv[1:], None], strict=False):
        if arg == "--":
            break
        if arg == flag:
            found = following
        elif arg.startswith(f"{flag}="):
            found = arg.partition("=")[2]
    return found


def format_in(argv: list[str]) -> str | None:
    """The format that a flag asks for; it is read first, as errors come in it, too."""
    found = value_in(argv, "--format")
    return None if found is None else settings.parse_format(found)


# ------------------------------------------------------------- options of every command


class Options(Struct, frozen=True, kw_only=True):
    """The settings of one command, after its flags.

    `yes`: "" (ask), "yes", or "bulk". `kb`, `store`, `format`: only if a flag named them.
    `again`: flags that a retry needs, so that it is about the same store and agent.
    """

    config: Config
    output: Output
    yes: str = ""
    wait: bool = True
    all: bool = False
    strict: bool = False
    dry_run: bool = False
    timeout_ms: int | None = None
    kb: str | None = None
    store: str | None = None
    format: str | None = None
    again: list[str] = []

    @property
    def prints_bytes(self) -> bool:
        """Whether stdout may get a source's bytes as they are: nobody asked for another format."""
        return "format" not in self.config.origins and not sys.stdout.isatty()

    @property
    def bound(self) -> Config:
        """The settings with the knowledge base of `--kb` as the one where none is named."""
        if self.kb is None:
            return self.config
        origins = {**self.config.origins, "kb": Origin("flag", "--kb")}
        return msgspec.structs.replace(self.config, kb=self.kb, origins=origins)


def options_of(
    parsed: Parsed, config: Config, output: Output, own: Collection[str] = ()
) -> Options:
    """`own`: names of flags that the command has itself, so that they are not the shell's.

    Raises input.invalid_params for a value that a flag can't have.
    """
    origins = dict(config.origins)
    changed: dict[str, Any] = {}
    _refuse_empty(parsed)
    if (store := parsed.last("--store")) is not None:
        changed["store"] = absolute(store, field="--store")
        origins["store"] = Origin("flag", "--store")
    if (acting := _acting(parsed, own)) is not None:
        changed["actor"], origins["agent"] = parsed.last(acting), Origin("flag", acting)
        changed["agent_named_by"] = acting if acting == "--agent" else None
    if (level := parsed.last("--log-level")) is not None:
        changed["log_level"] = settings.parse_log_level(level, field="--log-level")
        origins["log_level"] = Origin("flag", "--log-level")
    if parsed.last("--format") is not None:
        origins["format"] = Origin("flag", "--format")
    if (program := parsed.last("--jq")) is not None:
        output.jq = Jq(program)
    return Options(
        config=msgspec.structs.replace(config, **changed, origins=origins),
        output=output,
        yes=_approval(parsed.last("--yes")),
        wait=not parsed.last("--no-wait"),
        all=bool(parsed.last("--all")),
        strict=bool(parsed.last("--strict")),
        dry_run=bool(parsed.last("--dry-run")),
        timeout_ms=_timeout_ms(parsed.last("--timeout")),
        kb=parsed.last("--kb"),
        store=store,
        format=parsed.last("--format"),
        again=_again(parsed, ["--store", "--profile", acting]),
    )


def _refuse_empty(parsed: Parsed) -> None:
    """An empty path would be the working directory, an empty name nobody."""
    for name in ("--store", "--root", "--kb", "--agent", "--actor"):
        if parsed.last(name) == "":
            raise usage_error(
                f"{name} is empty.", name, hint=f"Name one, or leave {name} out: see --help."
            )


def _acting(parsed: Parsed, own: Collection[str]) -> str | None:
    """The flag that says who acts; raises input.invalid_params for both."""
    given = [name for name in ("--agent", "--actor") if name in parsed.given and name not in own]
    if len(given) == 2:
        raise usage_error("--agent and --actor exclude each other.", "--agent")
    return given[0] if given else None


def _again(parsed: Parsed, names: list[str | None]) -> list[str]:
    given = [name for name in names if name is not None and name in parsed.given]
    return [word for name in given for word in (name, str(parsed.last(name)))]


def _approval(value: str | bool | None) -> str:
    if value in (None, False, True, "bulk"):
        return "yes" if value is True else value or ""
    raise usage_error(f"--yes is {value!r}; it can be bulk.", "--yes", valid_values=["bulk"])


def _timeout_ms(seconds: str | None) -> int | None:
    if seconds is None:
        return None
    try:
        return round(float(seconds) * 1000)
    except (ValueError, OverflowError):
        raise usage_error(
            f"--timeout is {seconds!r}, which is no number of seconds.", "--timeout"
        ) from None


def output_for(format: str | None, *, color: bool) -> Output:
    """None: text on a terminal, else json."""
    if format is None:
        format = "text" if sys.stdout.isatty() else "json"
    if format == "text":
        from kbproc.shell.printing.terminal import Text

        return Text(sys.stdout, sys.stderr, color=color)
    return (Ndjson if format == "ndjson" else Output)(sys.stdout, sys.stderr)
