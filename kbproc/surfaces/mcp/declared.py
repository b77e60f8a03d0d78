"""Declares tools by hand, with short schemas, and makes a tool of each other method.

A declaration holds the tool's method, description and arguments; the rest comes from the method.
The sets group tools. `make generate` writes them to `tools.json`, so that a process that serves
them need not import the methods.
"""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct

from kbproc.base.params import LeanParams
from kbproc.methods.calls.method import Method
from kbproc.methods.calls.registry import Registry
from kbproc.methods.calls.schemas import params_schema, result_schema

UNDONE_BY = "kbproc/undone_by"  # a member of a tool's _meta
MOST_DESCRIPTION = 350  # characters
_NO_LIMIT = (
    1_000_000  # limits above it are left out, such as those of ids, because no model reaches them
)
Schema = dict[str, Any]

# Methods that a client does not need, because the protocol has its own means, or a person decides.
_HIDDEN = frozenset(
    {"events.subscribe", "schema", "plan.list", "plan.approve", "plan.refuse", "chunk.map"}
)
_GOES_OUTSIDE = frozenset({"doc.fetch"})  # methods that reach other machines


class ToolDeclaration(Struct, frozen=True, kw_only=True):
    """A declaration of a tool. `shows`: its arguments, the required ones first and marked with `!`.

    `preset`: default params. `instead`: an argument → the method to call if it is present.
    `reads_only`: the tool calls any method that reads.
    """

    name: str
    method: str
    what: str
    shows: tuple[str, ...]
    preset: dict[str, Any] = {}
    instead: dict[str, str] = {}
    reads_only: bool = False


# Members of a hit that a model needs; five such hits take at most 1,000 tokens.
HITS: dict[str, Any] = {
    "fields": [
        "score",
        "text",
        "source.document_id",
        "source.path",
        "source.cite",
        "source.dated",
        "source.kb_description",
        "origin",
        "superseded_by",
        "head",
        "conflicts.says",
        "explain",
    ],
    "text_chars": 445,
}
_NOTE_HITS = {"fields": ["slug", "title", "score", "snippet", "section", "dated"]}
_FINDS = ("kb", "limit", "mode", "tags")
TOOLS = (
    ToolDeclaration(
        name="search_knowledge",
        method="search",
        what="Finds passages in documents, knowledge entries and notes, by words and meaning. Use "
        "it first for whatever they may answer, and cite source.cite. confidence none: the store "
        "does not know. To read on: doc_view; for a finished answer: chat.",
        shows=("query!", *_FINDS, "minScore", "efSearch", "includeSuperseded", "includeExpired"),
        preset={"limit": 5, "highlight": False, **HITS},
    ),
    ToolDeclaration(
        name="doc_view",
        method="doc.get",
        what="Reads a document, entry or note by id. While has_more, go on with offset: "
        "next_offset. To find something, use search_knowledge.",
        shows=("id!", "offset", "length"),
        preset={"text": True},
    ),
    ToolDeclaration(
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
    ToolDeclaration(
        name="supersede_knowledge",
        method="knowledge.supersede",
        what="Lets entry newId take the place of entry oldId, which searches then skip. Use it "
        "when an entry holds no more; first store the right one: store_knowledge. Nothing is "
        "deleted.",
        shows=("oldId!", "newId!", "clientToken"),
    ),
    ToolDeclaration(
        name="doc_add",
        method="doc.create",
        what="Adds a document: a text with its title, or files and folders by paths; unchanged "
        "files are skipped. Use it for whole sources; for a single fact: store_knowledge.",
        shows=("title", "text", "paths", "kb", "tags", "clientToken"),
        instead={"paths": "doc.ingest"},
    ),
    ToolDeclaration(
        name="doc_list",
        method="doc.list",
        what="Lists documents. Use it to see what is there; to find by content: search_knowledge.",
        shows=("kb", "types", "tags", "title_contains", "limit", "cursor"),
        preset={"limit": 20},
    ),
    ToolDeclaration(
        name="kb_list",
        method="kb.list",
        what="Lists the knowledge bases, for kb. Their documents: doc_list.",
        shows=("limit", "cursor"),
    ),
    ToolDeclaration(
        name="chat",
        method="chat",
        what="Answers a question from the store, citing passages, in a new session. Use it when a "
        "finished answer is wanted; passages alone: search_knowledge; to ask on: session_ask.",
        shows=("question!", "kb", "clientToken"),
    ),
    ToolDeclaration(
        name="session_ask",
        method="session.ask",
        what="Asks on in a session that knows what was said before. For a new topic: chat.",
        shows=("session_id!", "question!", "clientToken"),
    ),
    ToolDeclaration(
        name="kb_describe",
        method="describe",
        what="Tells of all methods in an index or, with name, of the params and examples of one. "
        "Use it before kb_read and kb_call.",
        shows=("name",),
    ),
    ToolDeclaration(
        name="kb_read",
        method="",
        what="Calls any method that reads. Use it when no other tool fits; to change something: "
        "kb_call.",
        shows=("method!", "params"),
        reads_only=True,
    ),
    ToolDeclaration(
        name="kb_call",
        method="",
        what="Calls any method that kb_describe tells of. Use it when no other tool fits; to read: "
        "kb_read. A person is asked before anything is destroyed.",
        shows=("method!", "params"),
    ),
    ToolDeclaration(
        name="kb_view",
        method="kb.get",
        what="Shows one knowledge base by slug. All of them: kb_list.",
        shows=("slug!",),
    ),
    ToolDeclaration(
        name="doc_download",
        method="doc.download",
        what="Returns a document's source bytes as base64, 6,000 at a time: while has_more, go on "
        "with offset: next_offset. For its text: doc_view.",
        shows=("id!", "offset", "length"),
    ),
    ToolDeclaration(
        name="chunk_list",
        method="chunk.list",
        what="Lists the passages of one document in order. To find passages by content: "
        "search_chunks.",
        shows=("document_id!", "limit", "cursor"),
        preset={"limit": 20},
    ),
    ToolDeclaration(
        name="search_chunks",
        method="search",
        what="Finds passages by words and meaning; cite source.cite. Use it for passages; for a "
        "finished answer: chat.",
        shows=("query!", *_FINDS, "minScore"),
        preset={"highlight": False, **HITS},
    ),
    ToolDeclaration(
        name="agent_list",
        method="agent.list",
        what="Lists the agents that can be asked with agent_invoke.",
        shows=("limit", "cursor"),
    ),
    ToolDeclaration(
        name="agent_invoke",
        method="agent.invoke",
        what="Asks a question of an agent, who answers from what it may see. Without an agent: "
        "chat.",
        shows=("slug!", "question!", "session_id", "clientToken"),
    ),
    ToolDeclaration(
        name="knowledge_search",
        method="note.search",
        what="Finds your notes by words and meaning. Use it before you write one; for documents, "
        "too: search_knowledge.",
        shows=("query!", "limit", "agent"),
        preset=_NOTE_HITS,
    ),
    ToolDeclaration(
        name="knowledge_read",
        method="note.get",
        what="Reads one of your notes by slug. While has_more, go on with offset: next_offset. To "
        "find it: knowledge_search.",
        shows=("slug!", "offset", "agent"),
    ),
    ToolDeclaration(
        name="knowledge_write",
        method="note.put",
        what="Writes a note, Markdown that begins with its title; one of the same slug is "
        "replaced, so read that first: knowledge_read.",
        shows=("slug!", "text!", "expected_revision", "agent", "clientToken"),
    ),
    ToolDeclaration(
        name="knowledge_list",
        method="note.list",
        what="Lists your notes by slug. To find by content: knowledge_search.",
        shows=("limit", "cursor", "agent"),
    ),
)
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
# The schema of each result, short because a model reads the result itself.
_SHAPE: Schema = {"type": "object", "required": ["data", "meta"]}


def tools(registry: Registry) -> dict[str, Any]:
    """Returns the content of tools.json.

    It holds the sets, each tool, the methods that write, that take long, and whose stream the log
    keeps, and the types of all params.
    """
    writes = [m for m in registry.methods.values() if m.kind != "read"]
    return {
        "sets": {name: list(members) for name, members in SETS.items()},
        "tools": {tool.name: _declared(registry, tool) for tool in TOOLS},
        "writes": [method.name for method in writes],
        "long": [method.name for method in writes if method.streams],
        "lasting": [method.name for method in writes if method.from_log],
        "params": {method.name: _bare(method) for method in registry.methods.values()},
    }


_BARE = ("type", "enum", "pattern", "minLength", "required")


def _bare(method: Method) -> Schema:
    """Returns the part of a method's params schema that toolbox.py reads."""
    schema = params_schema(method)
    return _shape(schema, schema.get("$defs", {}))


def _shape(schema: Schema, definitions: Schema) -> Schema:
    """Returns only the types of a schema, with references resolved."""
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
    """Returns each method as a tool of its own."""
    entries = {}
    for method in registry.methods.values():
        if method.name not in _HIDDEN:
            name = method.name.replace(".", "_")
            entries[name] = _entry(method.name, _full_tool(name, method), method, arguments={})
    return entries


def _declared(registry: Registry, tool: ToolDeclaration) -> dict[str, Any]:
    method = registry.methods.get(tool.method)
    candidates = [method, *(registry.methods[name] for name in tool.instead.values())]
    properties: dict[str, Schema] = {}
    arguments: dict[str, str] = {}
    required = []
    for argument in tool.shows:
        name = argument.removesuffix("!")
        arguments[name], properties[name] = _argument(tool, name, [m for m in candidates if m])
        if argument != name:
            required.append(name)
    schema: Schema = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required
    published = {
        "name": tool.name,
        "description": tool.what,
        "inputSchema": schema,
        "outputSchema": _SHAPE,
        "annotations": _hints_of(tool, method),
        **_undoing([m for m in candidates if m]),
    }
    renamed = {name: param for name, param in arguments.items() if param != name}
    entry = _entry(tool.method, published, method, arguments=renamed)
    entry |= {"preset": tool.preset, "instead": tool.instead}
    if method is not None:
        return entry
    return {**entry, "reads_only": tool.reads_only, "reach": _reach(registry, tool)}


def _hints_of(tool: ToolDeclaration, method: Method | None) -> dict[str, bool]:
    if method is not None:
        return hints(method)
    return _READ if tool.reads_only else _ANY


def _reach(registry: Registry, tool: ToolDeclaration) -> dict[str, list[str]]:
    """Returns effect → the scopes of which it needs one, for a tool for any method."""
    if tool.reads_only:
        return {}
    methods = registry.methods.values()
    destructive = [method for method in methods if method.kind == "destructive"]
    scopes: dict[str, set[str | None]] = {
        "writes": {method.own_scope or method.scope for method in methods if method.kind != "read"},
        "destroys": {method.scope for method in destructive},
        "destroys_own": {method.own_scope for method in destructive},
        "goes_outside": {registry.methods[name].scope for name in _GOES_OUTSIDE},
    }
    return {name: sorted(filter(None, needed)) for name, needed in scopes.items()}


def _argument(tool: ToolDeclaration, name: str, methods: list[Method]) -> tuple[str, Schema]:
    """Returns the param of an argument, and the argument's schema."""
    if (own := _OWN_ARGUMENTS.get((tool.name, name))) is not None:
        return own
    for method in methods:
        schema = params_schema(method)
        for param, member in schema["properties"].items():
            if name in (param, _camel(param)):
                return param, _short(member, schema.get("$defs", {}))
    raise KeyError(f"{tool.method} has no param {name}")


def _short(schema: Schema, definitions: Schema) -> Schema:
    """Returns a short schema of an argument; for a wrong value the error tells the rest."""
    if "$ref" in schema:
        return _short(definitions[schema["$ref"].rsplit("/", 1)[1]], definitions)
    if "anyOf" in schema:  # the first alternative suffices
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


def _full_tool(name: str, method: Method) -> dict[str, Any]:
    """Returns a method as a tool, with its whole declaration."""
    schema = {k: v for k, v in params_schema(method).items() if k not in {"$schema", "title"}}
    members = {k: v for k, v in schema.get("properties", {}).items() if k != "confirm"}
    return {
        "name": name,
        "description": _description(method),
        "inputSchema": {**schema, "type": "object", "properties": members},
        "outputSchema": {**_SHAPE, "properties": {"data": _outline(method)}},
        "annotations": hints(method),
        **_undoing([method]),
    }


def _outline(method: Method) -> Schema:
    """Returns the members of a result, one level deep; none is required of one that may be lean.

    Full result schemas would be thrice as long as all the rest; `kbproc schema` returns them.
    """
    schema = result_schema(method)
    kinds = _resolved(schema["properties"]["data"], schema.get("$defs", {}))
    some = [kind for kind in kinds if kind.get("type") != "null"]
    if len(some) != 1:
        return {}
    outline: Schema = {"type": some[0]["type"]}
    if len(kinds) > 1:  # because a dry run returns null
        outline["type"] = [outline["type"], "null"]
    if some[0].get("properties"):
        outline["properties"] = {name: {} for name in some[0]["properties"]}
        if not issubclass(method.params, LeanParams):
            outline["required"] = some[0].get("required", [])
    return outline


def _resolved(schema: Schema, definitions: Schema) -> list[Schema]:
    """Returns the alternatives of a schema, with references resolved."""
    if "$ref" in schema:
        return _resolved(definitions[schema["$ref"].rsplit("/", 1)[1]], definitions)
    if "anyOf" in schema:
        return [kind for part in schema["anyOf"] for kind in _resolved(part, definitions)]
    return [schema]


def _description(method: Method) -> str:
    """Returns the summary and as many whole sentences as fit."""
    text = method.summary
    for sentence in re.split(r"(?<=\.)(?=\s)", method.when_to_use):
        if len(text) + 1 + len(sentence.strip()) > MOST_DESCRIPTION:
            break
        text += f" {sentence.strip()}"
    return text


def hints(method: Method) -> dict[str, bool]:
    """Returns all four hints, because two of them default to true."""
    return {
        "readOnlyHint": method.kind == "read",
        "destructiveHint": method.kind == "destructive",
        "idempotentHint": method.idempotent,
        "openWorldHint": method.name in _GOES_OUTSIDE,
    }


def _undoing(candidates: list[Method]) -> Schema:
    """Returns `_meta` with the methods that take back what a tool writes, because a client knows
    only the four hints as annotations; empty for a tool that reads, or that calls any method.
    """
    lists = [method.undone_by for method in candidates if method.undone_by is not None]
    common = [name for name in lists[0] if all(name in names for names in lists)] if lists else []
    return {"_meta": {UNDONE_BY: common}} if lists else {}


_READ = {
    "readOnlyHint": True,
    "destructiveHint": False,
    "idempotentHint": True,
    "openWorldHint": False,
}
# The hints with all scopes; `toolbox.Tool.published` computes those with fewer.
_ANY = {
    "readOnlyHint": False,
    "destructiveHint": True,
    "idempotentHint": False,
    "openWorldHint": True,
}


def _scope(method: Method) -> str:
    """Returns the scope that shows the tool: the own scope, but never for a destructive method."""
    is_destructive = method.kind == "destructive"
    return method.scope if is_destructive else method.own_scope or method.scope


def _entry(
    name: str, tool: dict[str, Any], method: Method | None, arguments: dict[str, str]
) -> dict[str, Any]:
    """Returns an entry of tools.json. `arguments`: argument → param, where they differ."""
    return {
        "method": name,
        "scope": None if method is None else _scope(method),
        "destructive": method is not None and method.kind == "destructive",
        "arguments": arguments,
        "tool": tool,
    }
