"""What flags and environment settle before a command runs.

Owns: a flag before whatever config.py has settled for store, actor, format, knowledge
base and log level; timeout and approval; which output the command gets.
Refuses to know: which command it is and what it answers.
"""

from __future__ import annotations

import sys
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from kbproc.calls.flags import GLOBAL_FLAGS
from kbproc.settings import config as settings
from kbproc.settings.config import DEFAULT_KB, Config, Source
from kbproc.shell.arguments import Parsed, usage_error
from kbproc.shell.formats import Jq, Ndjson, Output

if TYPE_CHECKING:
    from kbproc.calls.method import Method

_GLOBALS = {flag.name: flag for flag in GLOBAL_FLAGS}


class Options(Struct, frozen=True, kw_only=True):
    """`yes`: "" (ask), "yes", or "bulk". `kb`, `store`, `format`: only if a flag named them.

    `again`: flags that a retry needs, so that it is about the same store and agent.
    """

    config: Config
    output: Output
    yes: str = ""
    wait: bool = True
    strict: bool = False
    dry_run: bool = False
    timeout_ms: int | None = None
    kb: str | None = None
    store: str | None = None
    format: str | None = None
    again: list[str] = []

    @property
    def bound(self) -> Config:
        """With the knowledge base of a flag as the one that is meant when none is named."""
        if self.kb is None:
            return self.config
        sources = {**self.config.sources, "kb": Source("flag", "--kb")}
        return msgspec.structs.replace(self.config, kb=self.kb, sources=sources)


def options_of(
    parsed: Parsed, config: Config, output: Output, own: Collection[str] = ()
) -> Options:
    """`own`: flags that are the command's and not the shell's, though the shell has one too.

    Raises input.invalid_params for a value that a flag can't have.
    """
    sources = dict(config.sources)
    told: dict[str, Any] = {}
    if (store := parsed.last("--store")) is not None:
        told["store"], sources["store"] = Path(store).expanduser(), Source("flag", "--store")
    if (acting := _acting(parsed, own)) is not None:
        told["actor"], sources["agent"] = parsed.last(acting), Source("flag", acting)
        told["agent_named"] = acting == "--agent"
    if (level := parsed.last("--log-level")) is not None:
        told["log_level"] = settings.parse_log_level(level, field="--log-level")
        sources["log_level"] = Source("flag", "--log-level")
    if parsed.last("--format") is not None:
        sources["format"] = Source("flag", "--format")
    if (program := parsed.last("--jq")) is not None:
        output.jq = Jq(program)
    return Options(
        config=msgspec.structs.replace(config, **told, sources=sources),
        output=output,
        yes=_approval(parsed.last("--yes")),
        wait=not parsed.last("--no-wait"),
        strict=bool(parsed.last("--strict")),
        dry_run=bool(parsed.last("--dry-run")),
        timeout_ms=_timeout_ms(parsed.last("--timeout")),
        kb=parsed.last("--kb"),
        store=store,
        format=parsed.last("--format"),
        again=_again(parsed, ["--store", "--profile", acting]),
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


def fill(method: Method, params: dict[str, Any], options: Options) -> dict[str, Any]:
    """Params with what flags and environment say about those that were not given."""
    fields = {info.name: info for info in msgspec.structs.fields(method.params)}
    told: dict[str, Any] = {}
    if options.kb is not None:
        told["kb"] = options.kb
    elif "kb" in fields and fields["kb"].default == DEFAULT_KB:
        told["kb"] = options.config.kb
    if options.timeout_ms is not None:
        told["timeout_ms"] = options.timeout_ms
    if options.dry_run:
        told["dry_run"] = True
    return {**{name: value for name, value in told.items() if name in fields}, **params}


# ---------------------------------------------------------------------- output


def output_for(format: str | None, *, color: bool) -> Output:
    """None: text on a terminal, else json."""
    if format is None:
        format = "text" if sys.stdout.isatty() else "json"
    if format == "text":
        from kbproc.shell.terminal import Text

        return Text(sys.stdout, sys.stderr, color=color)
    return (Ndjson if format == "ndjson" else Output)(sys.stdout, sys.stderr)


def format_in(argv: list[str]) -> str | None:
    """The format that is asked for, read before anything else: errors come in it, too."""
    found = value_in(argv, "--format")
    return None if found is None else settings.parse_format(found)


def value_in(argv: list[str], flag: str) -> str | None:
    """A flag's last value, before it is known what command it belongs to."""
    found = None
    for arg, following in zip(argv, [*argv[1:], None], strict=False):
        if arg == "--":
            break
        if arg == flag:
            found = following
        elif arg.startswith(f"{flag}="):
            found = arg.partition("=")[2]
    return found


def leading_flags(argv: list[str]) -> tuple[list[str], list[str]]:
    """Splits off the flags before the command's first word."""
    at = 0
    while at < len(argv) and argv[at].startswith("-"):
        flag = _GLOBALS.get(argv[at].partition("=")[0])
        at += 2 if flag is not None and flag.takes_value and "=" not in argv[at] else 1
    return argv[:at], argv[at:]
