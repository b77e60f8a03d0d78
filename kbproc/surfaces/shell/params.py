"""The params that a command line means.

Owns: what flags, positionals and `KEY=VALUE` mean as params, and what environment, link and
profile say where nothing was given.
Refuses to know: how a value is read by its type (calls/typed.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from kbproc.base.errors import KbprocError
from kbproc.calls.flags import Flag, flags_of
from kbproc.calls.typed import command_of, json_or_text, scalar, value_of
from kbproc.settings.config import DEFAULT_KB, Config
from kbproc.shell.arguments import Options, Parsed, usage_error
from kbproc.shell.texts import Texts

if TYPE_CHECKING:
    from kbproc.calls.method import Method

ALL_KBS = "*"


def params_of(method: Method, parsed: Parsed, read_stdin: Callable[[], bytes]) -> dict[str, Any]:
    """The params that a command line means; raises input.invalid_params, resource.not_found."""
    texts = Texts(read_stdin)
    params: dict[str, Any] = {}
    flags = {flag.name: flag for flag in flags_of(method)}
    for name, flag in flags.items():
        values = parsed.given.get(name)
        if values is None:
            continue
        for member, value in flag.sets.items() if values[-1] else ():
            put(params, member, value)
        if flag.param is not None:
            put(params, flag.param, value_of(flag, _meant(flag, values, texts)))
    by_param = {flag.param: flag for flag in flags.values()}
    _take_positionals(method, [by_param[name] for name in method.positional], parsed, params, texts)
    return params


def _meant(flag: Flag, words: list[str | bool], texts: Texts) -> list[str | bool]:
    """The last of a text's words counts, and no other is read; of objects all are."""
    if flag.is_records:
        return [texts.of(str(word), flag) for word in words]
    return [texts.of(str(words[-1]), flag)] if flag.is_text else words


def _take_positionals(
    method: Method, flags: list[Flag], parsed: Parsed, params: dict[str, Any], texts: Texts
) -> None:
    left = list(parsed.positionals)
    for flag in flags:
        if left and flag.type == "array":
            put(params, str(flag.param), _listed(flag, left))
            left = []
        elif left:
            put(params, str(flag.param), value_of(flag, _meant(flag, [left.pop(0)], texts)))
    if left:
        raise _too_many(method, flags, left)


def _listed(flag: Flag, texts: list[str]) -> list[Any]:
    """Paths may hold commas; numbers can't."""
    if flag.items == "string":
        return list(texts)
    return [scalar(part, flag.items) for text in texts for part in text.split(",")]


def _too_many(method: Method, flags: list[Flag], left: list[str]) -> KbprocError:
    command = command_of(method)
    takes = " ".join(str(flag.param).upper() for flag in flags) or "no arguments, only flags"
    quoted = flags and flags[-1].type == "string"
    return usage_error(
        f"{command} takes {takes}; {left[0]!r} is one too many.",
        left[0],
        hint="Put words that belong together in quotes."
        if quoted
        else f"See {command} --help for its flags.",
    )


def put(params: dict[str, Any], dotted: str, value: Any) -> None:
    """Sets a member, making the objects on its way; raises input.invalid_params."""
    *way, last = dotted.split(".")
    here = params
    for step in way:
        here = here.setdefault(step, {})
        if not isinstance(here, dict):
            raise usage_error(f"{dotted} goes through {step}, which is no object.", dotted)
    if isinstance(value, dict) and isinstance(here.get(last), dict):
        here[last].update(value)
    else:
        here[last] = value


def params_from_words(words: list[str], read_stdin: Callable[[], bytes]) -> dict[str, Any]:
    """What `call` is given after the method: JSON objects, `key=value`, `-` for stdin."""
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


def _decoded(data: bytes, what: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise KbprocError(
            "input.invalid_json",
            f"{what} is no JSON object: {error}.",
            field="$.params",
            hint='Write params as one JSON object, such as {"limit": 5}.',
        ) from None
    return found


def fill(method: Method, params: dict[str, Any], options: Options) -> dict[str, Any]:
    """Params with what flags and environment say about those that were not given."""
    fields = method.params.__struct_fields__
    given: dict[str, Any] = {}
    if "kb" in fields:
        given["kb"] = options.kb or _kb_settled(method, options.config)
    if options.timeout_ms is not None:
        given["timeout_ms"] = options.timeout_ms
    if options.dry_run:
        given["dry_run"] = True
    known = {name: value for name, value in given.items() if name in fields and value is not None}
    filled = {**known, **params}
    return _of_all_kbs(method, filled) if filled.get("kb") == ALL_KBS else filled


def _kb_settled(method: Method, config: Config) -> str | None:
    """The knowledge base that additions go to; reads and questions look at it where somebody chose
    one.

    What concerns the whole store is narrowed by a flag only.
    """
    if adds(method):
        return config.kb
    looks = method.looks_at_kb and not method.whole
    return config.kb if looks and "kb" in config.origins else None


def _of_all_kbs(method: Method, params: dict[str, Any]) -> dict[str, Any]:
    """Raises input.invalid_params for an addition."""
    if adds(method):
        raise usage_error(
            f"{command_of(method)} needs one knowledge base; '{ALL_KBS}' is all of them.",
            "--kb",
            hint="Name one, such as --kb default.",
        )
    return {name: value for name, value in params.items() if name != "kb"}


def adds(method: Method) -> bool:
    """Whether it adds to one knowledge base, and so needs one."""
    fields = {info.name: info for info in msgspec.structs.fields(method.params)}
    return "kb" in fields and fields["kb"].default == DEFAULT_KB
