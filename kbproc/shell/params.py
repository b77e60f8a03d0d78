"""Params from words, and words from params.

Owns: what flags, positionals and `KEY=VALUE` mean as params, reading values by their
type, and writing a request as a command line that reads back the same.
Refuses to know: ranges, patterns and choices: the method itself refuses what does not
fit, so that each error exists once.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from kbproc.base.errors import KbprocError
from kbproc.calls.flags import Flag, Kind, flags_of
from kbproc.settings.config import DEFAULT_KB
from kbproc.shell.arguments import TRUTH, Options, Parsed, is_number, usage_error

if TYPE_CHECKING:
    from kbproc.calls.method import Method

_WHOLE = re.compile(r"-?\d+")


def params_of(method: Method, parsed: Parsed) -> dict[str, Any]:
    """The params that a command line means; raises input.invalid_params."""
    params: dict[str, Any] = {}
    flags = {flag.name: flag for flag in flags_of(method)}
    for name, flag in flags.items():
        values = parsed.given.get(name)
        if values is None:
            continue
        for member, value in flag.sets.items() if values[-1] else ():
            put(params, member, value)
        if flag.param is not None:
            put(params, flag.param, _value(flag, values))
    by_param = {flag.param: flag for flag in flags.values()}
    _take_positionals(method, [by_param[name] for name in method.positional], parsed, params)
    return params


def _take_positionals(
    method: Method, flags: list[Flag], parsed: Parsed, params: dict[str, Any]
) -> None:
    left = list(parsed.positionals)
    for flag in flags:
        if left and flag.type == "array":
            put(params, str(flag.param), _listed(flag, left))
            left = []
        elif left:
            put(params, str(flag.param), _value(flag, [left.pop(0)]))
    if left:
        raise _too_many(method, flags, left)


def _listed(flag: Flag, texts: list[str]) -> list[Any]:
    """Paths may hold commas; numbers can't."""
    if flag.items == "string":
        return list(texts)
    return [_scalar(part, flag.items) for text in texts for part in text.split(",")]


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


def _value(flag: Flag, texts: list[str | bool]) -> Any:
    if flag.type == "boolean":
        return texts[-1]
    words = [str(text) for text in texts]
    if flag.type == "object":
        return _object(flag, words)
    if flag.items is not None:
        return _list_or_one(flag, words)
    return _scalar(words[-1], flag.type)


def _list_or_one(flag: Flag, texts: list[str]) -> Any:
    items = [item for text in texts for item in _items(flag, text)]
    return items[0] if flag.type != "array" and len(items) == 1 else items


def _items(flag: Flag, text: str) -> list[Any]:
    """`a,b`, or a JSON array for items that hold commas."""
    if text.startswith("["):
        decoded = _json(text)
        if isinstance(decoded, list):
            return decoded
    return [_scalar(part.strip(), flag.items) for part in text.split(",")] if text else []


def _object(flag: Flag, texts: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for text in texts:
        decoded = _json(text) if text.startswith("{") else None
        if isinstance(decoded, dict):
            found.update(decoded)
            continue
        key, equals, value = text.partition("=")
        if not equals:
            raise usage_error(
                f"{flag.name} is {text!r}, which is neither KEY=VALUE nor a JSON object.",
                f"$.params.{flag.param}",
                hint=f'Write {flag.name} KEY=VALUE, or {flag.name} \'{{"key": "value"}}\'.',
            )
        found[key] = json_or_text(value)
    return found


def _scalar(text: str, kind: Kind | None) -> Any:
    """What is no number stays a text, which the method then refuses by name."""
    if kind == "integer" and _WHOLE.fullmatch(text):
        return int(text)
    if kind == "number" and is_number(text):
        return float(text)
    if kind == "boolean":
        return TRUTH.get(text.lower(), text)
    return json_or_text(text) if kind in {"json", "object", "array"} else text


def json_or_text(text: str) -> Any:
    """The JSON value that `text` spells, else the text itself."""
    decoded = _json(text)
    return text if decoded is msgspec.UNSET else decoded


def _json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return msgspec.UNSET


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
    fields = {info.name: info for info in msgspec.structs.fields(method.params)}
    given: dict[str, Any] = {}
    if options.kb is not None:
        given["kb"] = options.kb
    elif "kb" in fields and fields["kb"].default == DEFAULT_KB:
        given["kb"] = options.config.kb
    if options.timeout_ms is not None:
        given["timeout_ms"] = options.timeout_ms
    if options.dry_run:
        given["dry_run"] = True
    return {**{name: value for name, value in given.items() if name in fields}, **params}


# ---------------------------------------------------------------------- to words


def command_of(method: Method) -> str:
    return f"kbproc {method.name.replace('.', ' ')}"


def argv_of(method: Method, params: dict[str, Any]) -> list[str]:
    """The command line that means `params`; members that are null are left out."""
    left = {name: value for name, value in params.items() if value is not None}
    flags = {flag.param: flag for flag in flags_of(method) if flag.param is not None}
    words = _positional_words(method, flags, left)
    for name, value in left.items():
        words += _flag_words(flags, name, value)
    return [*command_of(method).split(), *words]


def _positional_words(method: Method, flags: dict[str, Flag], left: dict[str, Any]) -> list[str]:
    words: list[str] = []
    for name in method.positional:
        value = left.get(name)
        texts = [_text(item) for item in (value if isinstance(value, list) else [value])]
        if value in (None, []) or any(word.startswith("-") for word in texts):
            break
        if not isinstance(value, list) and _value(flags[name], [texts[0]]) != value:
            break
        words += texts
        del left[name]
    return words


def _flag_words(flags: dict[str, Flag], param: str, value: Any) -> list[str]:
    flag = flags[param]
    if value is True:
        return [flag.name]
    if value is False:
        return [flag.name.replace("--", "--no-", 1)]
    if isinstance(value, dict) and value:
        return _object_words(flags, flag, value)
    if isinstance(value, list):
        joined = ",".join(_text(item) for item in value)
        same = bool(value) and _list_or_one(flag, [joined]) == value
        return _pair(flag.name, joined if same else _text(value))
    return _pair(flag.name, _text(value))


def _object_words(flags: dict[str, Flag], flag: Flag, value: dict[str, Any]) -> list[str]:
    if any(f"{flag.param}.{key}" in flags for key in value):
        present = {key: item for key, item in value.items() if item is not None}
        return [
            word
            for key, item in present.items()
            for word in _flag_words(flags, f"{flag.param}.{key}", item)
        ]
    words = [f"{key}={_text(item)}" for key, item in value.items()]
    if _object(flag, words) != value:
        return _pair(flag.name, _text(value))
    return [part for word in words for part in _pair(flag.name, word)]


def _pair(name: str, value: str) -> list[str]:
    return [f"{name}={value}"] if value.startswith("-") else [name, value]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
