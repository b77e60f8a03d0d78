"""Derives command-line flags from a method's Params, reads params from words, and writes them back.

The flags of every command are here, too, and the few flags of single methods that only the shell
has. An outline of a method holds its flags and all else that a command line and its help need, so
that a process can read one without importing the method.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, Union, get_args, get_origin

import msgspec
from msgspec import Meta, Struct, UnsetType

from kbproc.base.errors import KbprocError
from kbproc.base.params import DestructiveParams, LeanParams
from kbproc.base.settings.config import DEFAULT_KB, FORMATS, LOG_LEVELS
from kbproc.base.values import INSTANT, published

if TYPE_CHECKING:  # because the first line of a server waits for no method
    from kbproc.methods.calls.method import Example, Method
    from kbproc.methods.calls.method import Kind as MethodKind

Kind = Literal["string", "integer", "number", "boolean", "array", "object", "json"]

_KINDS: dict[Any, Kind] = {str: "string", int: "integer", float: "number", bool: "boolean"}
_COMMON = frozenset(
    {*LeanParams.__struct_fields__, *DestructiveParams.__struct_fields__, "budget_tokens"}
)
_PROFILEABLE = frozenset({"kb"})  # params that profiles set
# Values of these params are taken as they are, because they are names of files or made by kbproc.
_NO_TEXTS = frozenset(
    {"path", "path_prefix", "notes_folder", "glob", "cursor", "confirm", "client_token"}
)
_MOMENTS = frozenset({"as_of", "since"})  # a time or a position
_LONGEST_LINE = 2000  # characters of a query, a title or a description
_SENSITIVE = ("api_key", "password", "secret")


class Flag(Struct, frozen=True, kw_only=True):
    """One flag.

    `param`: the dotted member of params that it sets; None if it is the shell's own.
    `items`: type of a list's items; a scalar `type` with `items` takes one or several.
    `minimum`, `maximum` bound the value; `min_length`, `max_length` its length.
    `sets`: what a switch stands for. `positional`: may be given without its name.
    """

    name: str
    type: Kind
    help: str
    param: str | None = None
    items: Kind | None = None
    default: Any = None
    required: bool = False
    positional: bool = False
    enum: list[Any] | None = None
    pattern: str | None = None
    minimum: float | None = None
    maximum: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    env: str | None = None
    mutually_exclusive: list[str] = []
    profileable: bool = False
    sensitive: bool = False
    sets: dict[str, Any] = {}

    @property
    def takes_value(self) -> bool:
        return self.type != "boolean"

    @property
    def is_long(self) -> bool:
        """Returns whether the value is a long text of many lines, which keeps its last newline."""
        return self.max_length is not None and self.max_length > _LONGEST_LINE

    @property
    def is_text(self) -> bool:
        """Returns whether `-` and `@FILE` stand for the text of stdin and of the file."""
        free = self.type == "string" and self.enum is None and self.pattern is None
        last = str(self.param).rpartition(".")[2]
        return free and self.param is not None and last not in _NO_TEXTS

    @property
    def is_moment(self) -> bool:
        """Returns True for a time, which a person may write in words."""
        last = str(self.param).rpartition(".")[2]
        return last in _MOMENTS or self.pattern == published(INSTANT)

    @property
    def is_records(self) -> bool:
        """Returns whether the flag takes a list of objects, as JSON or one a line, also from stdin
        or a file.
        """
        return self.type == "array" and self.items == "object"


class Outline(Struct, frozen=True, kw_only=True):
    """The facts about a method that a command line and its help need; see Method.

    `flags`: the method's own; `common`: the names of the shell's that apply to it.
    """

    name: str
    summary: str
    when_to_use: str
    kind: MethodKind
    members: tuple[str, ...]
    flags: tuple[Flag, ...]
    common: tuple[str, ...]
    all_errors: tuple[str, ...]
    examples: tuple[Example, ...]
    undone_by: tuple[str, ...] | None = None
    alias: str | None = None
    positional: tuple[str, ...] = ()
    streams: bool = False
    needs_store: bool = False
    elsewhere: bool = False
    adds: bool = False
    is_limited: bool = False
    is_endless: bool = False


Described: TypeAlias = "Method | Outline"

_MODES = ["--mode", "--fts-only", "--vec-only"]


def _mode(name: str, mode: str, help: str) -> Flag:
    others = [flag for flag in _MODES if flag != name]
    return Flag(
        name=name, type="boolean", help=help, sets={"mode": mode}, mutually_exclusive=others
    )


_VERBOSE = Flag(name="--verbose", type="boolean", help="as text, also list what worked")

# Method → flags without a param.
SHELL_FLAGS: dict[str, tuple[Flag, ...]] = {
    "doc.ingest": (
        _VERBOSE,
        Flag(
            name="--strict",
            type="boolean",
            help="exit 3 while any file can't be read, also one that could not be read before",
        ),
    ),
    "store.import": (_VERBOSE,),
    "doc.fetch": (
        Flag(
            name="--allow-private-addresses",
            type="boolean",
            help="fetch from a private or local address once a person has approved of it",
        ),
    ),
    "search": (
        _mode("--fts-only", "fts", "words only: --mode fts"),
        _mode("--vec-only", "vector", "meaning only: --mode vector"),
    ),
    "doctor": (Flag(name="--strict", type="boolean", help="exit 2 unless everything is healthy"),),
    "describe": (
        Flag(name="--agents-md", type="boolean", help="print the block for a project's AGENTS.md"),
    ),
}

# Method → defaults for people, where a command leaves the param out.
SHELL_DEFAULTS: dict[str, dict[str, Any]] = {"tag.list": {"order": "count"}}

# Method → the base64 member whose bytes a command writes to a file or a pipe.
SHELL_BYTES = {"doc.download": "content"}

# A plan has the risk `bulk` if it removes this.
BULK = (
    "more than half of a knowledge base of ten documents or more or of an agent's notes, or ten "
    "notes or conversations at once"
)

# Flags of all commands; each command takes those that apply to it.
GLOBAL_FLAGS: tuple[Flag, ...] = (
    Flag(
        name="--format",
        type="string",
        help="output: one JSON envelope, bare events, or text for people (human = text); "
        "text on a terminal, else json",
        enum=[*FORMATS, "human"],
        env="KBPROC_FORMAT",
        profileable=True,
    ),
    Flag(name="--jq", type="string", help="print what this jq program makes of the envelope"),
    Flag(
        name="--yes",
        type="boolean",
        help="or -y: approve what a person is asked about, such as the plan of a destructive "
        f"command; --yes=bulk for one that removes {BULK}",
    ),
    Flag(name="--dry-run", type="boolean", help="only tell what would happen", param="dry_run"),
    Flag(
        name="--store",
        type="string",
        help="folder of the store",
        env="KBPROC_STORE",
        profileable=True,
    ),
    Flag(
        name="--kb",
        type="string",
        help="knowledge base that is added to and looked at; '*' for all",
        param="kb",
        env="KBPROC_KB",
        profileable=True,
    ),
    Flag(
        name="--timeout",
        type="number",
        help="give up after this many seconds",
        minimum=0,
        mutually_exclusive=["--timeout-ms"],
    ),
    Flag(
        name="--log-level",
        type="string",
        help="what is logged on stderr",
        enum=list(LOG_LEVELS),
        default="warning",
        env="KBPROC_LOG_LEVEL",
        profileable=True,
    ),
    Flag(
        name="--agent",
        type="string",
        help="the agent that acts, and that the log names as the author",
        env="KBPROC_AGENT",
        profileable=True,
    ),
    Flag(
        name="--actor",
        type="string",
        help="a mere name that the log is to have as the author, not an agent's",
    ),
    Flag(
        name="--profile",
        type="string",
        help="settings that kbproc profile save has kept, by name",
        env="KBPROC_PROFILE",
    ),
    Flag(
        name="--all",
        type="boolean",
        help="all pages of a list",
        mutually_exclusive=["--cursor"],
    ),
    Flag(name="--no-wait", type="boolean", help="leave embedding what is new for later"),
    Flag(name="--help", type="boolean", help="show this help"),
)


_OF_EVERY_METHOD = frozenset(
    {"--format", "--jq", "--store", "--timeout", "--log-level", "--agent", "--actor", "--profile"}
)


def outline_of(method: Method) -> Outline:
    """Returns the outline of a declared method."""
    own: dict[str, Any] = {"flags": tuple(flags_of(method)), "common": _common_names(method)}
    inherited = {name for name in Outline.__struct_fields__ if name not in own}
    return Outline(**own, **{name: getattr(method, name) for name in inherited})


def outline_in(row: dict[str, Any]) -> Outline:
    """Returns the outline of decoded JSON, in which members that have their default are left out.

    It is not decoded as Outline, because that would make a float of a whole number that bounds.
    """
    from kbproc.methods.calls.method import Example

    row["flags"] = tuple(Flag(**flag) for flag in row["flags"])
    row["examples"] = tuple(Example(**example) for example in row["examples"])
    for name in ("members", "common", "all_errors", "positional"):
        row[name] = tuple(row.get(name, ()))
    if "undone_by" in row:
        row["undone_by"] = tuple(row["undone_by"])
    return Outline(**row)


def common_flags(method: Described) -> list[Flag]:
    """Returns the shell's flags that apply to a method, without those that the method has
    itself.
    """
    names = method.common if isinstance(method, Outline) else _common_names(method)
    return [flag for flag in GLOBAL_FLAGS if flag.name in names]


def _common_names(method: Method) -> tuple[str, ...]:
    names = {"--help", *_OF_EVERY_METHOD}
    own = {flag.name for flag in flags_of(method)}
    if issubclass(method.params, DestructiveParams) or "--allow-private-addresses" in own:
        names.add("--yes")
    if method.kind != "read":
        names.add("--no-wait")
    if "cursor" in method.params.__struct_fields__:
        names.add("--all")
    return tuple(flag.name for flag in GLOBAL_FLAGS if flag.name in names - own)


def flags_of(method: Described) -> list[Flag]:
    """Returns the method's own flags, the shell's for it, then those that most methods have."""
    if isinstance(method, Outline):
        return list(method.flags)
    flags = [flag for info in msgspec.structs.fields(method.params) for flag in _flags(info, "")]
    flags = [_placed(flag, method) for flag in flags]
    own = [flag for flag in flags if flag.param not in _COMMON]
    common = [flag for flag in flags if flag.param in _COMMON]
    return [*own, *SHELL_FLAGS.get(method.name, ()), *common]


def _placed(flag: Flag, method: Method) -> Flag:
    """Returns the flag with the facts that depend on the whole method."""
    extra = SHELL_FLAGS.get(method.name, ())
    exclusive = [other.name for other in extra if flag.name in other.mutually_exclusive]
    return msgspec.structs.replace(
        flag, positional=flag.param in method.positional, mutually_exclusive=exclusive
    )


def _flags(info: msgspec.structs.FieldInfo, prefix: str) -> list[Flag]:
    """Returns one param as a flag; a struct also as a flag for each of its members."""
    shape = _shape(info.type)
    param = prefix + info.encode_name
    own = Flag(
        name="--" + param.replace("_", "-"),
        param=param,
        required=info.required,
        default=_default(info),
        env="KBPROC_KB" if param == "kb" and info.default == DEFAULT_KB else None,
        profileable=param in _PROFILEABLE,
        sensitive=info.name.endswith(_SENSITIVE),
        **{name: getattr(shape, name) for name in _SHARED},
    )
    if shape.struct is None:
        return [own]
    members = msgspec.structs.fields(shape.struct)
    return [own, *(flag for member in members for flag in _flags(member, f"{param}."))]


def _default(info: msgspec.structs.FieldInfo) -> Any:
    if info.default_factory is not msgspec.NODEFAULT:
        return msgspec.to_builtins(info.default_factory())
    if info.default in (msgspec.NODEFAULT, msgspec.UNSET):
        return None
    return msgspec.to_builtins(info.default)


class _FlagShape(Struct, frozen=True, kw_only=True):
    """The facts in a type's annotation, without None."""

    type: Kind
    help: str = ""
    items: Kind | None = None
    enum: list[Any] | None = None
    pattern: str | None = None
    minimum: float | None = None
    maximum: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    struct: Any = None


_SHARED = tuple(name for name in _FlagShape.__struct_fields__ if name != "struct")


def _shape(annotation: Any) -> _FlagShape:
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _narrowed(_shape(args[0]), [meta for meta in args[1:] if isinstance(meta, Meta)])
    if origin in {Union, UnionType}:
        return _either([_shape(arg) for arg in args if arg not in {NoneType, UnsetType}])
    if origin is Literal:
        return _FlagShape(type=_KINDS.get(type(args[0]), "json"), enum=list(args))
    if origin is list:
        item = _shape(args[0])
        return _FlagShape(type="array", items=item.type, enum=item.enum, help=item.help)
    if origin is dict:
        return _FlagShape(type="object")
    if isinstance(annotation, type) and issubclass(annotation, Struct):
        return _FlagShape(type="object", struct=annotation)
    return _FlagShape(type=_KINDS.get(annotation, "json"))


def _either(shapes: list[_FlagShape]) -> _FlagShape:
    """Returns the shape of a union: a value or a list of such values; anything else is JSON."""
    if len(shapes) == 1:
        return shapes[0]
    one, many = shapes[0], shapes[-1]
    if len(shapes) == 2 and many.type == "array" and many.items == one.type:
        return msgspec.structs.replace(one, items=one.type, max_length=many.max_length)
    return _FlagShape(type="json")


def _narrowed(shape: _FlagShape, metas: list[Meta]) -> _FlagShape:
    for meta in metas:
        constraints = {
            "help": meta.description,
            "pattern": meta.pattern and published(meta.pattern),
            "minimum": meta.ge,
            "maximum": meta.le,
            "min_length": meta.min_length,
            "max_length": meta.max_length,
        }
        present = {name: value for name, value in constraints.items() if value is not None}
        shape = msgspec.structs.replace(shape, **present)
    return shape


TRUTH = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
_WHOLE = r"-?\d+"
_DECIMAL = r"-?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?"
_ESCAPED = r"\\+[-@]"


def is_number(text: str) -> bool:
    return not text.startswith("--") and re.fullmatch(_DECIMAL, text) is not None


def unescaped(word: str) -> str:
    r"""Returns the text that a word means: `\-` and `\@` begin it with that character."""
    return word[1:] if re.match(_ESCAPED, word) else word


def _escaped(text: str) -> str:
    """Returns the text as a word that is not taken for stdin or a file."""
    special = text == "-" or text.startswith("@") or re.match(_ESCAPED, text)
    return f"\\{text}" if special else text


def value_of(flag: Flag, texts: Sequence[str | bool]) -> Any:
    """Returns the value of a flag's words; raises input.invalid_params."""
    if flag.type == "boolean":
        return texts[-1]
    words = [str(text) for text in texts]
    if flag.type == "object":
        return _object(flag, words)
    if flag.items is not None:
        return _list_or_one(flag, words)
    return scalar(words[-1], flag.type)


def _list_or_one(flag: Flag, texts: list[str]) -> Any:
    items = [item for text in texts for item in _items(flag, text)]
    return items[0] if flag.type != "array" and len(items) == 1 else items


def _items(flag: Flag, text: str) -> list[Any]:
    """Returns the items of `a,b`, or of a JSON array for items that hold commas."""
    if flag.is_records:
        return _records(flag, text)
    if text.startswith("["):
        decoded = _json(text)
        if isinstance(decoded, list):
            return decoded
    return [scalar(part.strip(), flag.items) for part in text.split(",")] if text else []


def _records(flag: Flag, text: str) -> list[Any]:
    """Returns the objects of a JSON array, of one object, or of an object a line."""
    whole = _json(text)
    if isinstance(whole, list):
        return whole
    if isinstance(whole, dict):
        return [whole]
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    items = [(number, _json(line)) for number, line in lines]
    for number, item in items:
        if not isinstance(item, dict):
            raise KbprocError(
                "input.invalid_params",
                f"{flag.name}: line {number} is no JSON object.",
                field=flag.name,
                hint="Write a JSON array of objects, or one object a line.",
            )
    return [item for _, item in items]


def _object(flag: Flag, texts: list[str]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for text in texts:
        decoded = _json(text) if text.startswith("{") else None
        if isinstance(decoded, dict):
            members.update(decoded)
            continue
        key, equals, value = text.partition("=")
        if not equals:
            raise KbprocError(
                "input.invalid_params",
                f"{flag.name} is {text!r}, which is neither KEY=VALUE nor a JSON object.",
                field=flag.name,
                hint=f'Write {flag.name} KEY=VALUE, or {flag.name} \'{{"key": "value"}}\'.',
            )
        members[key] = json_or_text(value)
    return members


def scalar(text: str, kind: Kind | None) -> Any:
    """Returns the value; text that is no number stays text, which the method then refuses by
    name.
    """
    if kind == "integer" and re.fullmatch(_WHOLE, text):
        return int(text)
    if kind == "number" and is_number(text):
        return float(text)
    if kind == "boolean":
        return TRUTH.get(text.lower(), text)
    return json_or_text(text) if kind in {"json", "object", "array"} else text


def json_or_text(text: str) -> Any:
    """Returns the JSON value that `text` spells, else the text itself."""
    decoded = _json(text)
    return text if decoded is msgspec.UNSET else decoded


def _json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return msgspec.UNSET


# ---------------------------------------------------------------------- to words


def command_of(method: Described) -> str:
    return f"kbproc {method.name.replace('.', ' ')}"


def usage_of(method: Described, name: str | None = None) -> str:
    """Returns the usage; `name`: the command, if it is not the method's own."""
    flags = {flag.param: flag for flag in flags_of(method)}
    slots = [_slot(flags[param]) for param in method.positional]
    return f"Usage: {' '.join([name or command_of(method), *slots, '[FLAGS]'])}"


def _slot(flag: Flag) -> str:
    name = str(flag.param).upper() + (" …" if flag.type == "array" else "")
    return name if flag.required else f"[{name}]"


def argv_of(method: Described, params: dict[str, Any]) -> list[str]:
    """Returns the command line for `params`; null members are left out."""
    remaining = {name: value for name, value in params.items() if value is not None}
    flags = {flag.param: flag for flag in flags_of(method) if flag.param is not None}
    words = _positional_words(method, flags, remaining)
    for name, value in remaining.items():
        words += _flag_words(flags, name, value)
    return [*command_of(method).split(), *words]


def _positional_words(
    method: Described, flags: dict[str, Flag], remaining: dict[str, Any]
) -> list[str]:
    words: list[str] = []
    for name in method.positional:
        value = remaining.get(name)
        flag, items = flags[name], value if isinstance(value, list) else [value]
        texts = [_word(flag, item) for item in items]
        if value in (None, []) or any(word.startswith("-") for word in texts):
            break
        if not isinstance(value, list) and value_of(flag, [_text(value)]) != value:
            break
        words += texts
        del remaining[name]
    return words


def _flag_words(flags: dict[str, Flag], param: str, value: Any) -> list[str]:
    flag = flags[param]
    if value is True:
        return [flag.name]
    if value is False:
        return [flag.name.replace("--", "--no-", 1)]
    if isinstance(value, dict) and value:
        return _object_words(flags, flag, value)
    if isinstance(value, list) and flag.is_records:
        return _pair(flag.name, _text(value))
    if isinstance(value, list):
        joined = ",".join(_text(item) for item in value)
        same = bool(value) and _list_or_one(flag, [joined]) == value
        return _pair(flag.name, joined if same else _text(value))
    return _pair(flag.name, _word(flag, value))


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


def _word(flag: Flag, value: Any) -> str:
    return _escaped(_text(value)) if flag.is_text else _text(value)


def _pair(name: str, value: str) -> list[str]:
    return [f"{name}={value}"] if value.startswith("-") else [name, value]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
