"""Turns flags, positionals and `KEY=VALUE` into a method's params.

Environment, link and profile fill params that the command line leaves out.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from kbproc.base.errors import KbprocError
from kbproc.base.host import Host
from kbproc.base.values import NOT_READABLE
from kbproc.methods.calls.flags import (
    Described,
    Flag,
    command_of,
    flags_of,
    json_or_text,
    scalar,
    value_of,
)
from kbproc.surfaces.shell.arguments import Options, ParsedArguments, usage_error
from kbproc.surfaces.shell.texts import Texts

if TYPE_CHECKING:
    from kbproc.base.settings.config import Config

ALL_KBS = "*"


def params_of(
    method: Described, parsed: ParsedArguments, read_stdin: Callable[[], bytes]
) -> dict[str, Any]:
    """Returns the params of a command line. Raises input.invalid_params, resource.not_found."""
    texts = Texts(read_stdin)
    params: dict[str, Any] = {}
    flags = {flag.name: flag for flag in flags_of(method)}
    for name, flag in flags.items():
        values = parsed.flags.get(name)
        if values is None:
            continue
        for member, value in flag.sets.items() if values[-1] else ():
            put(params, member, value)
        if flag.param is not None:
            put(params, flag.param, value_of(flag, _read_words(flag, values, texts)))
    by_param = {flag.param: flag for flag in flags.values()}
    _take_positionals(method, [by_param[name] for name in method.positional], parsed, params, texts)
    return params


def _read_words(flag: Flag, words: list[str | bool], texts: Texts) -> list[str | bool]:
    """Returns the words with names read as texts: all words of objects, else only the last."""
    if flag.is_moment:
        return [_moment(str(words[-1]))]
    if flag.is_records:
        return [texts.of(str(word), flag) for word in words]
    return [texts.of(str(words[-1]), flag)] if flag.is_text else words


def _moment(word: str) -> str:
    """Returns the time that a person's words mean; any other word stays."""
    if word[:1].isdigit() and "-" in word:
        return word
    from kbproc.surfaces.shell.moments import moment

    return moment(word, _now()) or word


def _now() -> datetime:
    return datetime.fromisoformat(Host().now()).astimezone()


def _take_positionals(
    method: Described,
    flags: list[Flag],
    parsed: ParsedArguments,
    params: dict[str, Any],
    texts: Texts,
) -> None:
    remaining = list(parsed.positionals)
    for flag in flags:
        if remaining and flag.type == "array":
            put(params, str(flag.param), _items(flag, remaining))
            remaining = []
        elif remaining:
            put(
                params,
                str(flag.param),
                value_of(flag, _read_words(flag, [remaining.pop(0)], texts)),
            )
    if remaining:
        raise _too_many(method, flags, remaining)


def _items(flag: Flag, texts: list[str]) -> list[Any]:
    """Returns the items of the texts; commas separate numbers, but may be part of a path."""
    if flag.items == "string":
        return list(texts)
    return [scalar(part, flag.items) for text in texts for part in text.split(",")]


def _too_many(method: Described, flags: list[Flag], words: list[str]) -> KbprocError:
    command = command_of(method)
    takes = " ".join(str(flag.param).upper() for flag in flags) or "no arguments, only flags"
    quoted = flags and flags[-1].type == "string"
    return usage_error(
        f"{command} takes {takes}; {words[0]!r} is one too many.",
        words[0],
        hint="Put words that belong together in quotes."
        if quoted
        else f"See {command} --help for its flags.",
    )


def put(params: dict[str, Any], dotted: str, value: Any) -> None:
    """Sets a member, and makes the objects that hold it. Raises input.invalid_params."""
    *path, last = dotted.split(".")
    here = params
    for step in path:
        here = here.setdefault(step, {})
        if not isinstance(here, dict):
            raise usage_error(f"{dotted} goes through {step}, which is no object.", dotted)
    if isinstance(value, dict) and isinstance(here.get(last), dict):
        here[last].update(value)
    else:
        here[last] = value


def params_from_words(words: list[str], read_stdin: Callable[[], bytes]) -> dict[str, Any]:
    """Returns the params of `call`: JSON objects, `key=value`, `-` for stdin."""
    params: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if word == "-":
            params.update(_decoded(read_stdin(), "stdin"))
        elif word.lstrip().startswith("{"):
            params.update(_decoded(word.encode(), "the JSON argument"))
        elif equals:
            put(params, key, json_or_text(value))
        else:
            raise usage_error(
                f"{word!r} is neither KEY=VALUE, a JSON object nor -.",
                word,
                hint="Write limit=5, or '{\"limit\": 5}', or - to read JSON from stdin.",
            )
    return params


def _decoded(data: bytes, source: str) -> dict[str, Any]:
    try:
        params: dict[str, Any] = msgspec.json.decode(data, type=dict[str, Any])
    except NOT_READABLE as error:
        raise KbprocError(
            "input.invalid_json",
            f"{source} is no JSON object: {error}.",
            field="$.params",
            hint='Write params as one JSON object, such as {"limit": 5}.',
        ) from None
    return params


def fill(method: Described, params: dict[str, Any], options: Options) -> dict[str, Any]:
    """Returns the params, with defaults from flags and environment for those left out."""
    fields = method.members
    defaults: dict[str, Any] = {}
    if "kb" in fields:
        defaults["kb"] = options.kb or _default_kb(method, options.config)
    if options.timeout_ms is not None:
        defaults["timeout_ms"] = options.timeout_ms
    if options.dry_run:
        defaults["dry_run"] = True
    usable = {k: value for k, value in defaults.items() if k in fields and value is not None}
    filled = {**usable, **params}
    return _without_kb(method, filled) if filled.get("kb") == ALL_KBS else filled


def _default_kb(method: Described, config: Config) -> str | None:
    """Returns the default knowledge base of a method; None if the method has no default.

    Additions always have one. Reads and questions have one where a setting names it. Only a
    flag limits methods about the whole store.
    """
    if method.adds:
        return config.kb
    return config.kb if method.is_limited and "kb" in config.origins else None


def _without_kb(method: Described, params: dict[str, Any]) -> dict[str, Any]:
    """Returns params that mean all knowledge bases. Raises input.invalid_params for additions."""
    if method.adds:
        raise usage_error(
            f"{command_of(method)} needs one knowledge base; '{ALL_KBS}' is all of them.",
            "--kb",
            hint="Name one, such as --kb default.",
        )
    return {name: value for name, value in params.items() if name != "kb"}
