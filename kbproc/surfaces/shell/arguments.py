"""Reads a command line: flags, positionals, and the options that every command has.

Flags are read by their declarations. Global flags change the settings, the timeout, the
approval and the output format.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import msgspec
from msgspec import Struct

from kbproc.base.errors import KbprocError
from kbproc.base.paths import absolute
from kbproc.base.settings import config as settings
from kbproc.base.settings.config import Config, SettingOrigin
from kbproc.base.suggest import closest, did_you_mean, ranked
from kbproc.methods.calls.flags import GLOBAL_FLAGS, TRUTH, Flag, is_number
from kbproc.surfaces.shell.printing.formats import Jq, Ndjson, Output

_SHORT = {"-h": "--help", "-y": "--yes"}
_WHY_NOT = {
    "--dry-run": "This command changes nothing in the store. Leave --dry-run out.",
    "--yes": "This command asks for no approval. Leave --yes out.",
    "--all": "Only lists have pages. Leave --all out.",
    "--no-wait": "Only commands that add texts embed them. Leave --no-wait out.",
}
_GLOBALS = {flag.name: flag for flag in GLOBAL_FLAGS}


class ParsedArguments(Struct, frozen=True):
    """The flags and positionals of a command line.

    `flags`: flag name → its texts, or booleans, in their order on the line.
    """

    flags: dict[str, list[str | bool]]
    positionals: list[str]

    def last(self, name: str) -> Any:
        """Returns the flag's last value; None if the flag is absent."""
        values = self.flags.get(name)
        return values[-1] if values else None


def usage_error(message: str, field: str, **more: Any) -> KbprocError:
    return KbprocError("input.invalid_params", message, field=field, **more)


def parse(command: str, flags: Iterable[Flag], args: list[str]) -> ParsedArguments:
    """Reads the line. Raises input.invalid_params for unknown, incomplete and opposing flags."""
    declared = {flag.name: flag for flag in flags}
    values: dict[str, list[str | bool]] = {}
    positionals: list[str] = []
    rest = iter(args)
    for arg in rest:
        if arg == "--":
            positionals += rest
        elif not _is_flag(arg):
            positionals.append(arg)
        else:
            name, value = _read_flag(command, declared, arg, rest)
            values.setdefault(name, []).append(value)
    for name in values:
        _refuse_contradiction(declared[name], values)
    return ParsedArguments(values, positionals)


def _is_flag(arg: str) -> bool:
    """Returns true for a flag; a word that a search excludes and a negative number are none."""
    name = arg.partition("=")[0]
    return arg.startswith("-") and arg != "-" and " " not in name and not is_number(arg)


def _read_flag(
    command: str, declared: dict[str, Flag], arg: str, rest: Iterator[str]
) -> tuple[str, str | bool]:
    typed, equals, value = arg.partition("=")
    name = _SHORT.get(typed, typed.replace("_", "-"))
    opposite = declared.get("--" + name.removeprefix("--no-"))
    if name not in declared and opposite is not None and not opposite.takes_value and not equals:
        return opposite.name, False
    flag = declared.get(name)
    if flag is None:
        raise _unknown_flag(command, declared, typed)
    if not flag.takes_value:
        return name, _switch(flag, value) if equals else True
    if not equals:
        value = _next_value(name, declared, rest)
    return name, value


def refuse_meaningless(command: str, declared: Collection[str], typed: Iterable[str]) -> None:
    """Raises input.invalid_params for a flag of other commands."""
    for name in typed:
        if name not in declared:
            raise _meaningless(command, name)


def _meaningless(command: str, name: str) -> KbprocError:
    return usage_error(
        f"{name} means nothing for {command}.", name, hint=_WHY_NOT.get(name, f"Leave {name} out.")
    )


def _unknown_flag(command: str, declared: dict[str, Flag], typed: str) -> KbprocError:
    if typed in _GLOBALS:
        return _meaningless(command, typed)
    return usage_error(
        f"{command} has no flag {typed}.",
        typed,
        valid_values=ranked(typed, declared),
        hint=f"{did_you_mean(near_flag(typed, declared))}See {command} --help.",
    )


def near_flag(typed: str, declared: Iterable[str]) -> str | None:
    """Returns the flag that was probably meant; never one that approves a plan."""
    bare = {name.lstrip("-"): name for name in declared if name not in {"--yes", "--confirm"}}
    like = closest(typed.lstrip("-"), bare)  # without the dashes, because all names share them
    return None if like is None else bare[like]


def _switch(flag: Flag, value: str) -> str | bool:
    """Returns the value of `--prune=false`; text that is no truth value stays (`--yes=bulk`)."""
    return TRUTH.get(value.lower(), value)


def _next_value(name: str, declared: dict[str, Flag], rest: Iterator[str]) -> str:
    value = next(rest, None)
    if value is None or value.split("=")[0] in declared:
        raise usage_error(
            f"{name} needs a value.", name, hint=f"Write {name} VALUE, or {name}=VALUE."
        )
    return value


def _refuse_contradiction(flag: Flag, values: dict[str, list[str | bool]]) -> None:
    for other in flag.mutually_exclusive:
        if other in values:
            raise usage_error(
                f"{flag.name} and {other} exclude each other.",
                flag.name,
                hint="Leave one of them out.",
            )


# ------------------------------------------------- before the command is known


def leading_flags(argv: list[str]) -> tuple[list[str], list[str]]:
    """Splits off the flags before the command's first word."""
    at = 0
    while at < len(argv) and argv[at].startswith("-"):
        flag = _GLOBALS.get(argv[at].partition("=")[0])
        at += 2 if flag is not None and flag.takes_value and "=" not in argv[at] else 1
    return argv[:at], argv[at:]


def value_in(argv: list[str], flag: str) -> str | None:
    """Returns a flag's last value, at any place in the line; None if the flag is absent."""
    value = None
    for arg, following in zip(argv, [*argv[1:], None], strict=False):
        if arg == "--":
            break
        if arg == flag:
            value = following
        elif arg.startswith(f"{flag}="):
            value = arg.partition("=")[2]
    return value


def format_in(argv: list[str]) -> str | None:
    """Returns the format of --format, which is read first because errors need it, too."""
    name = value_in(argv, "--format")
    return None if name is None else settings.parse_format(name)


# ------------------------------------------------------------- options of every command


class Options(Struct, frozen=True, kw_only=True):
    """The settings of one command, after its flags.

    `yes`: "" (ask), "yes", or "bulk". `kb`, `store`, `format`: only from flags.
    `again`: the flags that a retry needs to reach the same store as the same agent.
    """

    config: Config
    output: Output
    yes: str = ""
    wait: bool = True
    all: bool = False
    strict: bool = False
    dry_run: bool = False
    allow_private_addresses: bool = False
    timeout_ms: int | None = None
    kb: str | None = None
    store: str | None = None
    format: str | None = None
    again: list[str] = []

    @property
    def prints_bytes(self) -> bool:
        """Returns true if stdout gets a source's plain bytes: no format is set, and no terminal."""
        return "format" not in self.config.origins and not sys.stdout.isatty()

    @property
    def bound(self) -> Config:
        """Returns the settings with the knowledge base of `--kb` as the default."""
        if self.kb is None:
            return self.config
        origins = {**self.config.origins, "kb": SettingOrigin("flag", "--kb")}
        return msgspec.structs.replace(self.config, kb=self.kb, origins=origins)


def options_of(
    parsed: ParsedArguments, config: Config, output: Output, own: Collection[str] = ()
) -> Options:
    """Returns the options of the flags. `own`: flags of the command that hide the shell's.

    Raises input.invalid_params for a value that a flag can't have.
    """
    origins = dict(config.origins)
    changed: dict[str, Any] = {}
    _refuse_empty(parsed)
    _refuse_two_agents(parsed)
    if (store := parsed.last("--store")) is not None:
        changed["store"] = absolute(store, field="--store")
        origins["store"] = SettingOrigin("flag", "--store")
    if (acting := _acting(parsed, own)) is not None:
        changed["actor"], origins["agent"] = parsed.last(acting), SettingOrigin("flag", acting)
        changed["agent_named_by"] = acting if acting == "--agent" else None
    if (level := parsed.last("--log-level")) is not None:
        changed["log_level"] = settings.parse_log_level(level, field="--log-level")
        origins["log_level"] = SettingOrigin("flag", "--log-level")
    if parsed.last("--format") is not None:
        origins["format"] = SettingOrigin("flag", "--format")
    if (program := parsed.last("--jq")) is not None:
        output.jq = Jq(program)
    output.details = bool(parsed.last("--verbose"))
    return Options(
        config=msgspec.structs.replace(config, **changed, origins=origins),
        output=output,
        yes=_approval(parsed.last("--yes")),
        wait=not parsed.last("--no-wait"),
        all=bool(parsed.last("--all")),
        strict=bool(parsed.last("--strict")),
        dry_run=bool(parsed.last("--dry-run")),
        allow_private_addresses=bool(parsed.last("--allow-private-addresses")),
        timeout_ms=_timeout_ms(parsed.last("--timeout")),
        kb=parsed.last("--kb"),
        store=store,
        format=parsed.last("--format"),
        again=_again(parsed, ["--store", "--profile", acting, "--all"]),
    )


def _refuse_empty(parsed: ParsedArguments) -> None:
    """Raises input.invalid_params for an empty name or path, which could be a mistake."""
    for name in ("--store", "--root", "--kb", "--agent", "--actor"):
        if parsed.last(name) == "":
            raise usage_error(
                f"{name} is empty.", name, hint=f"Name one, or leave {name} out: see --help."
            )


def _refuse_two_agents(parsed: ParsedArguments) -> None:
    """Raises input.invalid_params for two agents, because the last would override the first."""
    agents = list(dict.fromkeys(map(str, parsed.flags.get("--agent", ()))))
    if len(agents) > 1:
        raise usage_error(
            f"--agent names {len(agents)} agents: {', '.join(agents)}.",
            "--agent",
            valid_values=agents,
            hint="Name one: before the command it means the same as after it.",
        )


def _acting(parsed: ParsedArguments, own: Collection[str]) -> str | None:
    """Returns --agent or --actor, None for neither. Raises input.invalid_params for both."""
    names = [name for name in ("--agent", "--actor") if name in parsed.flags and name not in own]
    if len(names) == 2:
        raise usage_error("--agent and --actor exclude each other.", "--agent")
    return names[0] if names else None


def _again(parsed: ParsedArguments, names: list[str | None]) -> list[str]:
    typed = [name for name in names if name is not None and parsed.last(name)]
    switches = [name for name in typed if parsed.last(name) is True]
    valued = [name for name in typed if name not in switches]
    words = [word for name in valued for word in (name, str(parsed.last(name)))]
    return [*words, *switches]


def _approval(value: str | bool | None) -> str:
    if value in (None, False, True, "bulk"):
        return "yes" if value is True else value or ""
    raise usage_error(f"--yes is {value!r}; it can be bulk.", "--yes", valid_values=["bulk"])


def _timeout_ms(seconds: str | None) -> int | None:
    if seconds is None:
        return None
    with contextlib.suppress(ValueError, OverflowError):
        timeout_ms = round(float(seconds) * 1000)
        if timeout_ms >= 0:
            return timeout_ms
    raise usage_error(f"--timeout is {seconds!r}, which is no number of seconds.", "--timeout")


def output_for(format: str | None, *, color: bool) -> Output:
    """Returns the output for a format; None means text on a terminal, else json."""
    if format is None:
        format = "text" if sys.stdout.isatty() else "json"
    if format == "text":
        from kbproc.surfaces.shell.printing.terminal import Text

        return Text(sys.stdout, sys.stderr, color=color)
    return (Ndjson if format == "ndjson" else Output)(sys.stdout, sys.stderr)
