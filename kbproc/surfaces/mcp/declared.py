"""The tools that are declared by hand, for agents with little room, and all others.

Owns: which method each tool calls, what it says of itself and which params it shows; the sets.
Everything else of a tool comes from the method's own declaration. The tools declared by hand are
kept in `tools.json` (`kbproc gen`), so that a process that serves them need not know the methods.
Refuses to know: requests, and who asks.
"""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct

from kbproc.calls.method import Method
from kbproc.calls.registry import Registry
from kbproc.calls.schemas.schema import params_schema, result_schema
from kbproc.mcp.coercion import snake

MOST_DESCRIPTION = 350  # characters
_NO_LIMIT = 1_000_000  # ids, offsets and lengths: no model comes near their greatest value
Schema = dict[str, Any]

# Methods that tell nothing to a client of this protocol, which has its own means for it.
_HIDDEN = frozenset({"events.subscribe", "schema"})
_NOT_A_WORLD = frozenset({"doc.fetch"})  # all but these touch nothing outside


class Tool(Struct, frozen=True, kw_only=True):
    """A tool. `shows`: its arguments, those that must be given first and marked with `!`.

    `preset`: params that it gives unless the caller does. `instead`: an argument → the method
    that is called where it is given. `reads_only`: of a tool for any method, those that read.
    """

    name: str
    method: str
    what: str
    shows: tuple[str, ...]
    preset: dict[str, Any] = {}
    instead: dict[str, str] = {}
    reads_only: bool = False


# A model needs these members of a hit; five such hits cost it at most 1,000 tokens.
_HITS: dict[str, Any] = {
    "fields": [
        "score",
        "text",
        "source.document_id",
        "source.path",
        "source.cite",
        "superseded_by",
        "head",
        "explain",
    ],
    "text_chars": 480,
}
_NOTE_HITS = {"fields": ["slug", "title", "score", "snippet", "section"]}
_FINDS = ("kb", "limit", "mode", "tags")
TOOLS = (
    Tool(
        name="search_knowledge",
        method="search",
        what="Finds passages in documents, knowledge entries and notes, by words and meaning. Use "
        "it first for whatever they may answer, and cite source.cite. confidence none: the store "
        "does not know. To read on: doc_view; for a finished answer: chat.",
        shows=("query!", *_FINDS, "minScore", "efSearch", "includeSuperseded", "includeExpired"),
        preset={"limit": 5, "highlight": False, **_HITS},
    ),
    Tool(
        name="doc_view",
        method="doc.get",
        what="Reads a document, entry or note by id. While has_more, go on with offset: "
        "next_offset. To find something, use search_knowledge.",
        shows=("id!", "offset", "length"),
        preset={"text": True},
    ),
    Tool(
        name="store_knowledge",
        method="knowledge.store",
        what="Keeps one fact or procedure, titled by what it says. Use it for what will be needed "
        "again. similar names entries that say nearly the same: to correct one, follow with "
        "supersede_knowledge. For whole documents: doc_add.",
        shows=(
            "title!",
            "body!",
            "kb",
            "tags",
            "confidence",
            "expiresAt",
            "taskRef",
            "clientToken",
        ),
    ),
    Tool(
        name="supersede_knowledge",
        method="knowledge.supersede",
        what="Lets entry newId take the place of entry oldId, which searches then skip. Use it "
        "when an entry holds no more; first store the right one: store_knowledge. Nothing is "
        "deleted.",
        shows=("oldId!", "newId!", "clientToken"),
    ),
    Tool(
        name="doc_add",
        method="doc.create",
        what="Adds a document: a text with its title, or files and folders by paths; unchanged "
        "files are skipped. Use it for whole sources; for a single fact: store_knowledge.",
        shows=("title", "text", "paths", "kb", "tags", "clientToken"),
        instead={"paths": "doc.ingest"},
    ),
    Tool(
        name="doc_list",
        method="doc.list",
        what="Lists documents. Use it to see what is there; to find by content: search_knowledge.",
        shows=("kb", "types", "tags", "title_contains", "limit", "cursor"),
        preset={"limit": 20},
    ),
    Tool(
        name="kb_list",
        method="kb.list",
        what="Lists the knowledge bases, for kb. Their documents: doc_list.",
        shows=("limit", "cursor"),
    ),
    Tool(
        name="chat",
        method="chat",
        what="Answers a question from the store, citing passages, in a new session. Use it when a "
        "finished answer is wanted; passages alone: search_knowledge; to ask on: session_ask.",
        shows=("question!", "kb", "clientToken"),
    ),
    Tool(
        name="session_ask",
        method="session.ask",
        what="Asks on in a session that knows what was said before. For a new topic: chat.",
        shows=("session_id!", "question!", "clientToken"),
    ),
    Tool(
        name="kb_describe",
        method="describe",
        what="Tells of all methods in an index or, with name, of the params and examples of one. "
        "Use it before kb_read and kb_call.",
        shows=("name",),
    ),
    Tool(
        name="kb_read",
        method="",
        what="Calls any method that reads. Use it when no other tool fits; to change something: "
        "kb_call.",
        shows=("method!", "params"),
        reads_only=True,
    ),
    Tool(
        name="kb_call",
        method="",
        what="Calls any method that kb_describe tells of. Use it when no other tool fits; to read: "
        "kb_read. A person is asked before anything is destroyed.",
        shows=("method!", "params"),
    ),
    Tool(
        name="kb_view",
        method="kb.get",
        what="Shows one knowledge base by slug. All of them: kb_list.",
        shows=("slug!",),
    ),
    Tool(
        name="doc_download",
        method="doc.download",
        what="Returns a document's source bytes as base64, 6,000 at a time: while has_more, go on "
        "with offset: next_offset. For its text: doc_view.",
        shows=("id!", "offset", "length"),
    ),
    Tool(
        name="chunk_list",
        method="chunk.list",
        what="Lists the passages of one document in order. To find passages by content: "
        "search_chunks.",
        shows=("document_id!", "limit", "cursor"),
        preset={"limit": 20},
    ),
    Tool(
        name="search_chunks",
        method="search",
        what="Finds passages by words and meaning; cite source.cite. Use it for passages; for a "
        "finished answer: chat.",
        shows=("query!", *_FINDS, "minScore"),
        preset={"highlight": False, **_HITS},
    ),
    Tool(
        name="agent_list",
        method="agent.list",
        what="Lists the agents that can be asked with agent_invoke.",
        shows=("limit", "cursor"),
    ),
    Tool(
        name="agent_invoke",
        method="agent.invoke",
        what="Asks a question of an agent, who answers from what it may see. Without an agent: "
        "chat.",
        shows=("slug!", "question!", "session_id", "clientToken"),
    ),
    Tool(
        name="knowledge_search",
        method="note.search",
        what="Finds your notes by words and meaning. Use it before you write one; for documents, "
        "too: search_knowledge.",
        shows=("query!", "limit", "agent"),
        preset=_NOTE_HITS,
    ),
    Tool(
        name="knowledge_read",
        method="note.get",
        what="Reads one of your notes by slug. While has_more, go on with offset: next_offset. To "
        "find it: knowledge_search.",
        shows=("slug!", "offset", "agent"),
    ),
    Tool(
        name="knowledge_write",
        method="note.put",
        what="Writes a note, Markdown that begins with its title; one of the same slug is "
        "replaced, so read that first: knowledge_read.",
        shows=("slug!", "text!", "expected_revision", "agent", "clientToken"),
    ),
    Tool(
        name="knowledge_list",
        method="note.list",
        what="Lists your notes by slug. To find by content: knowledge_search.",
        shows=("limit", "cursor", "agent"),
    ),
)
_BY_NAME = {tool.name: tool for tool in TOOLS}
_MINIMAL = ("search_knowledge", "doc_view", "store_knowledge", "supersede_knowledge")
SETS = {
    "default": (
        *_MINIMAL,
        "doc_add",
        "doc_list",
        "kb_list",
        "chat",
        "session_ask",
        "kb_describe",
        "kb_read",
        "kb_call",
    ),
    "minimal": _MINIMAL,
    "notes": (
        "knowledge_search",
        "knowledge_read",
        "knowledge_write",
        "knowledge_list",
        "search_knowledge",
    ),
    "weknora": (
        "kb_list",
        "kb_view",
        "doc_list",
        "doc_view",
        "doc_download",
        "chunk_list",
        "search_chunks",
        "chat",
        "session_ask",
        "agent_list",
        "agent_invoke",
    ),
}

# Arguments that are no params of the method.
_OWN_ARGUMENTS: dict[tuple[str, str], tuple[str, Schema]] = {
    ("kb_describe", "name"): ("method", {"type": "string"}),
    **{(tool, "method"): ("method", {"type": "string"}) for tool in ("kb_read", "kb_call")},
    **{(tool, "params"): ("params", {"type": "object"}) for tool in ("kb_read", "kb_call")},
}
# Of every result; a model reads what it gets, and need not be told beforehand.
_SHAPE: Schema = {"type": "object", "required": ["data", "meta"]}


def tools(registry: Registry) -> dict[str, Any]:
    """Returns the content of tools.json: the sets, each tool, the methods that write, the methods
    that take long, and the kinds of all params.
    """
    writes = [m for m in registry.methods.values() if m.kind != "read"]
    return {
        "sets": {name: list(members) for name, members in SETS.items()},
        "tools": {tool.name: _declared(registry, tool) for tool in TOOLS},
        "writes": [method.name for method in writes],
        "long": [method.name for method in writes if method.streams],
        "params": {method.name: _bare(method) for method in registry.methods.values()},
    }


_BARE = ("type", "enum", "pattern", "minLength", "required")


def _bare(method: Method) -> Schema:
    """Returns the part of a method's params schema that coercion.py reads."""
    whole = params_schema(method)
    return _shape(whole, whole.get("$defs", {}))


def _shape(schema: Schema, definitions: Schema) -> Schema:
    """Returns the kinds of values alone, with references replaced by what they name."""
    if "$ref" in schema:
        return _shape(definitions[schema["$ref"].rsplit("/", 1)[1]], definitions)
    shape: Schema = {key: schema[key] for key in _BARE if schema.get(key)}
    if "anyOf" in schema:
        shape["anyOf"] = [_shape(kind, definitions) for kind in schema["anyOf"]]
    if "items" in schema:
        shape["items"] = _shape(schema["items"], definitions)
    if "properties" in schema:
        shape["properties"] = {
            name: _shape(member, definitions) for name, member in schema["properties"].items()
        }
    return shape


def methods(registry: Registry) -> dict[str, Any]:
    """Every method as a tool of its own."""
    found = {}
    for method in registry.methods.values():
        if method.name not in _HIDDEN:
            name = method.name.replace(".", "_")
            found[name] = _entry(method.name, _whole(name, method), method, arguments={})
    return found


def _declared(registry: Registry, tool: Tool) -> dict[str, Any]:
    method = registry.methods.get(tool.method)
    every = [method, *(registry.methods[name] for name in tool.instead.values())]
    properties: dict[str, Schema] = {}
    arguments: dict[str, str] = {}
    required = []
    for shown in tool.shows:
        name = shown.removesuffix("!")
        arguments[name], properties[name] = _argument(tool, name, [m for m in every if m])
        if shown != name:
            required.append(name)
    schema: Schema = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required
    told = {
        "name": tool.name,
        "description": tool.what,
        "inputSchema": schema,
        "outputSchema": _SHAPE,
        "annotations": _hints_of(tool, method),
    }
    renamed = {name: param for name, param in arguments.items() if param != name}
    entry = _entry(tool.method, told, method, arguments=renamed)
    entry |= {"preset": tool.preset, "instead": tool.instead}
    if method is not None:
        return entry
    return {**entry, "reads_only": tool.reads_only, "reach": _reach(registry, tool)}


def _hints_of(tool: Tool, method: Method | None) -> dict[str, bool]:
    if method is not None:
        return hints(method)
    return _READ if tool.reads_only else _ANY


def _reach(registry: Registry, tool: Tool) -> dict[str, list[str]]:
    """Returns what a tool for any method can do → the scopes of which that takes one."""
    if tool.reads_only:
        return {}
    every = registry.methods.values()
    scopes: dict[str, set[str | None]] = {
        "writes": {one.own_scope or one.scope for one in every if one.kind != "read"},
        "destroys": {one.scope for one in every if one.kind == "destructive"},
        "destroys_own": {one.own_scope for one in every if one.kind == "destructive"},
        "goes_outside": {registry.methods[name].scope for name in _NOT_A_WORLD},
    }
    return {name: sorted(one for one in some if one) for name, some in scopes.items()}


def _argument(tool: Tool, name: str, of: list[Method]) -> tuple[str, Schema]:
    """The param that an argument gives, and the argument's schema."""
    if (own := _OWN_ARGUMENTS.get((tool.name, name))) is not None:
        return own
    param = snake(name)
    for method in of:
        schema = params_schema(method)
        if param in schema["properties"]:
            return param, _short(schema["properties"][param], schema.get("$defs", {}))
    raise KeyError(f"{tool.method} has no param {param}")


def _short(schema: Schema, definitions: Schema) -> Schema:
    """What a model must know to give the argument; a wrong value is told of in words."""
    if "$ref" in schema:
        return _short(definitions[schema["$ref"].rsplit("/", 1)[1]], definitions)
    if "anyOf" in schema:  # the simplest will do
        kinds = [kind for kind in schema["anyOf"] if kind.get("type") != "null"]
        return _short(kinds[0], definitions)
    short: Schema = {key: schema[key] for key in ("enum", "type") if key in schema}
    if schema.get("maximum", _NO_LIMIT) < _NO_LIMIT:
        short |= {key: schema[key] for key in ("minimum", "maximum") if key in schema}
    if "enum" in short:
        short.pop("type", None)
    if short.get("type") == "array":
        items = _short(schema.get("items", {}), definitions)
        short["items"] = {"type": items.get("type", "string")}
    if "properties" in schema:
        short["properties"] = {
            _camel(name): _short(member, definitions)
            for name, member in schema["properties"].items()
        }
        if schema.get("required"):
            short["required"] = [_camel(name) for name in schema["required"]]
    return short


def _camel(name: str) -> str:
    return re.sub(r"_([a-z])", lambda match: match[1].upper(), name)


def _whole(name: str, method: Method) -> dict[str, Any]:
    """A method as a tool, with everything that is declared of it."""
    schema = {k: v for k, v in params_schema(method).items() if k not in {"$schema", "title"}}
    members = {k: v for k, v in schema.get("properties", {}).items() if k != "confirm"}
    return {
        "name": name,
        "description": _description(method),
        "inputSchema": {**schema, "type": "object", "properties": members},
        "outputSchema": {**_SHAPE, "properties": {"data": _outline(method)}},
        "annotations": hints(method),
    }


def _outline(method: Method) -> Schema:
    """The members of a result, one level deep: whole result schemas are thrice as long as all the
    rest, and `kbproc schema` has them.
    """
    whole = result_schema(method)
    kinds = _resolved(whole["properties"]["data"], whole.get("$defs", {}))
    told = [kind for kind in kinds if kind.get("type") != "null"]
    if len(told) != 1:
        return {}
    outline: Schema = {"type": told[0]["type"]}
    if len(kinds) > 1:  # a dry run has none
        outline["type"] = [outline["type"], "null"]
    if told[0].get("properties"):
        outline["properties"] = {name: {} for name in told[0]["properties"]}
        outline["required"] = told[0].get("required", [])
    return outline


def _resolved(schema: Schema, definitions: Schema) -> list[Schema]:
    """What it may be, references followed."""
    if "$ref" in schema:
        return _resolved(definitions[schema["$ref"].rsplit("/", 1)[1]], definitions)
    if "anyOf" in schema:
        return [kind for part in schema["anyOf"] for kind in _resolved(part, definitions)]
    return [schema]


def _description(method: Method) -> str:
    """Whole sentences, as many as fit."""
    said = method.summary
    for sentence in re.findall(r"[^.]+(?:\.(?!\s)[^.]*)*\.", method.when_to_use):
        if len(said) + 1 + len(sentence.strip()) > MOST_DESCRIPTION:
            break
        said += f" {sentence.strip()}"
    return said


def hints(method: Method) -> dict[str, bool]:
    """All four hints, as two of them are true where they are left out."""
    return {
        "readOnlyHint": method.kind == "read",
        "destructiveHint": method.kind == "destructive",
        "idempotentHint": method.idempotent,
        "openWorldHint": method.name in _NOT_A_WORLD,
    }


_READ = {
    "readOnlyHint": True,
    "destructiveHint": False,
    "idempotentHint": True,
    "openWorldHint": False,
}
# These hold where all scopes are given; `Tool.published` computes what fewer come to.
_ANY = {
    "readOnlyHint": False,
    "destructiveHint": True,
    "idempotentHint": False,
    "openWorldHint": True,
}


def _scope(method: Method) -> str:
    """Who may do it with what is its own is shown it; what destroys is not, even then."""
    is_destructive = method.kind == "destructive"
    return method.scope if is_destructive else method.own_scope or method.scope


def _entry(
    name: str, tool: dict[str, Any], method: Method | None, arguments: dict[str, str]
) -> dict[str, Any]:
    """`arguments`: argument → param, where they differ; `scope`: what the caller must have."""
    return {
        "method": name,
        "scope": None if method is None else _scope(method),
        "destructive": method is not None and method.kind == "destructive",
        "arguments": arguments,
        "tool": tool,
    }
