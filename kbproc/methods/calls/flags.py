"""Flags as data: what the command line can say about a method.

Owns: deriving flags from Params, the flags that every command has, and the few of single
methods that only the shell knows.
Refuses to know: how arguments are read, the commands that are no methods, and help and
completion, which are made from these flags.
"""

from __future__ import annotations

from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
from msgspec import Meta, Struct, UnsetType

from kbproc.base.params import DestructiveParams, LeanParams
from kbproc.base.values import published
from kbproc.settings.config import DEFAULT_KB, FORMATS, LOG_LEVELS

if TYPE_CHECKING:
    from kbproc.calls.method import Method

Kind = Literal["string", "integer", "number", "boolean", "array", "object", "json"]

_KINDS: dict[Any, Kind] = {str: "string", int: "integer", float: "number", bool: "boolean"}
_COMMON = frozenset(
    {*LeanParams.__struct_fields__, *DestructiveParams.__struct_fields__, "budget_tokens"}
)
_KEPT = frozenset({"kb"})  # by profiles, of the params
# Names of files, and what kbproc itself has given out, mean themselves.
_NO_TEXTS = frozenset(
    {"path", "path_prefix", "notes_folder", "glob", "cursor", "confirm", "client_token"}
)
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
        """Whether it is a text of many lines, which is kept to its last newline."""
        return self.max_length is not None and self.max_length > _LONGEST_LINE

    @property
    def is_text(self) -> bool:
        """Whether `-` and `@FILE` stand for what stdin and the file say."""
        free = self.type == "string" and self.enum is None and self.pattern is None
        last = str(self.param).rpartition(".")[2]
        return free and self.param is not None and last not in _NO_TEXTS

    @property
    def is_records(self) -> bool:
        """Whether it takes a list of objects, as JSON or one a line, from stdin or a file, too."""
        return self.type == "array" and self.items == "object"


_MODES = ["--mode", "--fts-only", "--vec-only"]


def _mode(name: str, mode: str, help: str) -> Flag:
    others = [flag for flag in _MODES if flag != name]
    return Flag(
        name=name, type="boolean", help=help, sets={"mode": mode}, mutually_exclusive=others
    )


# Method → flags that its params don't have.
SHELL_FLAGS: dict[str, tuple[Flag, ...]] = {
    "search": (
        _mode("--fts-only", "fts", "words only: --mode fts"),
        _mode("--vec-only", "vector", "meaning only: --mode vector"),
    ),
    "doctor": (Flag(name="--strict", type="boolean", help="exit 2 unless everything is healthy"),),
    "describe": (
        Flag(name="--agents-md", type="boolean", help="print the block for a project's AGENTS.md"),
    ),
}

# Method → what people mean where they say nothing else.
SHELL_DEFAULTS: dict[str, dict[str, Any]] = {"tag.list": {"order": "count"}}

# Method → the base64 member whose bytes are what a command writes to a file or a pipe.
SHELL_BYTES = {"doc.download": "content"}

# What the commands share; each takes those that mean something for it.
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
        help="or -y: approve the plan of a destructive command; --yes=bulk for one that removes "
        "more than half of a knowledge base",
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


def common_flags(method: Method) -> list[Flag]:
    """The shell's flags that mean something for a method, less those that it has itself."""
    names = {"--help", *_OF_EVERY_METHOD}
    if issubclass(method.params, DestructiveParams):
        names.add("--yes")
    if method.kind != "read":
        names.add("--no-wait")
    if "cursor" in method.params.__struct_fields__:
        names.add("--all")
    own = {flag.name for flag in flags_of(method)}
    return [flag for flag in GLOBAL_FLAGS if flag.name in names - own]


def flags_of(method: Method) -> list[Flag]:
    """The method's own flags, the shell's for it, then those that most methods have."""
    flags = [flag for info in msgspec.structs.fields(method.params) for flag in _flags(info, "")]
    flags = [_placed(flag, method) for flag in flags]
    own = [flag for flag in flags if flag.param not in _COMMON]
    common = [flag for flag in flags if flag.param in _COMMON]
    return [*own, *SHELL_FLAGS.get(method.name, ()), *common]


def _placed(flag: Flag, method: Method) -> Flag:
    """What only the method as a whole can tell of its flag."""
    extra = SHELL_FLAGS.get(method.name, ())
    exclusive = [other.name for other in extra if flag.name in other.mutually_exclusive]
    return msgspec.structs.replace(
        flag, positional=flag.param in method.positional, mutually_exclusive=exclusive
    )


def _flags(info: msgspec.structs.FieldInfo, prefix: str) -> list[Flag]:
    """One param as a flag; a struct also as a flag for each of its members."""
    shape = _shape(info.type)
    param = prefix + info.encode_name
    own = Flag(
        name="--" + param.replace("_", "-"),
        param=param,
        required=info.required,
        default=_default(info),
        env="KBPROC_KB" if param == "kb" and info.default == DEFAULT_KB else None,
        profileable=param in _KEPT,
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


class _Shape(Struct, frozen=True, kw_only=True):
    """What a type's annotation says, without None."""

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


_SHARED = tuple(name for name in _Shape.__struct_fields__ if name != "struct")


def _shape(annotation: Any) -> _Shape:
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _narrowed(_shape(args[0]), [meta for meta in args[1:] if isinstance(meta, Meta)])
    if origin in {Union, UnionType}:
        return _either([_shape(arg) for arg in args if arg not in {NoneType, UnsetType}])
    if origin is Literal:
        return _Shape(type=_KINDS.get(type(args[0]), "json"), enum=list(args))
    if origin is list:
        item = _shape(args[0])
        return _Shape(type="array", items=item.type, enum=item.enum, help=item.help)
    if origin is dict:
        return _Shape(type="object")
    if isinstance(annotation, type) and issubclass(annotation, Struct):
        return _Shape(type="object", struct=annotation)
    return _Shape(type=_KINDS.get(annotation, "json"))


def _either(shapes: list[_Shape]) -> _Shape:
    """One of several: a value or a list of such values is both; anything else is JSON."""
    if len(shapes) == 1:
        return shapes[0]
    one, many = shapes[0], shapes[-1]
    if len(shapes) == 2 and many.type == "array" and many.items == one.type:
        return msgspec.structs.replace(one, items=one.type, max_length=many.max_length)
    return _Shape(type="json")


def _narrowed(shape: _Shape, metas: list[Meta]) -> _Shape:
    for meta in metas:
        told = {
            "help": meta.description,
            "pattern": meta.pattern and published(meta.pattern),
            "minimum": meta.ge,
            "maximum": meta.le,
            "min_length": meta.min_length,
            "max_length": meta.max_length,
        }
        said = {name: value for name, value in told.items() if value is not None}
        shape = msgspec.structs.replace(shape, **said)
    return shape
