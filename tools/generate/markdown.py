"""Writes the method reference, the page of errors and the table of commands as Markdown.

They become docs/reference.md, docs/errors.md and a block of SKILL.md.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from typing import Any, get_args

from kbproc.base.errors import ERRORS, EXIT_CODES, RETRYABLE_WORDS
from kbproc.engine.store.sql.views import VIEWS
from kbproc.knowledge.transfer import portable
from kbproc.methods.calls.flags import argv_of, flags_of, usage_of
from kbproc.methods.calls.method import Method
from kbproc.methods.calls.registry import Registry
from tools.generate.members import forms


def commands(registry: Registry) -> str:
    """Returns a table of commands, each with one example that can be run as it stands."""
    lines = ["| command | what | example |", "| --- | --- | --- |"]
    for method in registry.methods.values():
        command = method.name.replace(".", " ")
        lines.append(f"| `{command}` | {method.summary} | {_followed(method)} |")
    return "\n".join(lines)


def _followed(method: Method) -> str:
    """Returns an example that succeeds, or that asks for a person; else only the usage."""
    for exit_code in (0, 10):
        for example in method.examples:
            line = shlex.join(argv_of(method, example.params))
            if example.exit == exit_code and "\n" not in line:
                return f"`{line}`" + (" (a person approves: exit 10)" if exit_code else "")
    return f"`{usage_of(method).removeprefix('Usage: ')}`".replace(" [FLAGS]", "")


def export_lines() -> str:
    """Returns Markdown for docs/moving.md: the members of each line, and of the objects in it."""
    rows = {f"`{kind.__struct_config__.tag}`": kind for kind in get_args(portable.Line)}
    rows |= {
        "a header's `vectors`": portable.VectorsOf,
        "a document's `source`": portable.Origin,
        "a document's chunk": portable.ExportedChunk,
        "a document's `source_facts`": portable.ExportedSourceFacts,
        "a document's `entry`": portable.ExportedEntry,
        "an entry's or a note's anchor": portable.ExportedAnchor,
        "a session's message": portable.ExportedMessage,
    }
    lines = ["| line | members |", "| --- | --- |"]
    for name, kind in rows.items():
        members = ", ".join(f"`{member}`" for member in kind.__struct_fields__)
        lines.append(f"| {name} | {members} |")
    return "\n".join(lines) + "\n"


def sql_views() -> str:
    """Returns how many views docs/sql.md describes, and their names."""
    names = ", ".join(f"[{name}](#{name})" for name in VIEWS)
    return f"The {len(VIEWS)} views are {names}."


def errors() -> str:
    lines = [
        "# Errors",
        "",
        "`kbproc help TYPE` shows one of these in a shell, `kbproc docs DOC_URL` what a `doc_url` "
        "names.",
        "",
    ]
    lines += ["| exit | meaning |", "| --- | --- |"]
    lines += [f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items()]
    for row in ERRORS.values():
        lines += [
            "",
            f'<a id="{row.type.replace(".", "")}"></a>',
            f"## {row.type}",
            "",
            f"When {row.when}. Exit {row.exit}, code {row.code}. Worth another try: "
            f"{RETRYABLE_WORDS[row.retryable]}.",
            "",
            row.hint,
        ]
    return "\n".join(lines) + "\n"


def reference(registry: Registry) -> str:
    lines = ["# Reference", "", "Every method, on the wire and as a command.", ""]
    lines += [
        "An answer is `{data, meta}`; a list that comes in pages is `data` itself, with "
        "`meta.count`, `meta.has_more` and `meta.next_cursor`; search results are "
        "`data.results`, beside members about all of them. In a dry run `data` is null and "
        "`meta.plan` describes what would be done. A later version may add members and named "
        "values to answers; params take only those listed here.",
        "",
    ]
    for method in registry.methods.values():
        lines += _section(method)
    return "\n".join(lines).rstrip() + "\n"


def _section(method: Method) -> Iterator[str]:
    kind = {"read": "reads", "write": "writes", "destructive": "destructive"}[method.kind]
    also = f" and `{method.also_needs}`" if method.also_needs else ""
    traits = [kind, *(["streams"] if method.streams else []), f"scope `{method.scope}`{also}"]
    traits += _undoing(method)
    yield from (f"## {method.name}", "", f"{method.summary} *({', '.join(traits)})*", "")
    yield from (method.when_to_use, "", "| param | flag | type | default | meaning |")
    yield "| --- | --- | --- | --- | --- |"
    for flag in flags_of(method):
        default = "required" if flag.required else json.dumps(flag.default, ensure_ascii=False)
        meaning = " ".join(filter(None, [flag.help, _values(flag.enum)]))
        yield f"| `{flag.param}` | `{flag.name}` | {flag.type} | {default} | {meaning} |"
    yield from _answer(method)
    yield from ("", "```sh")
    for example in method.examples:
        line = shlex.join(argv_of(method, example.params))
        yield f"{line}  # {example.what}" + (f"; exits {example.exit}" if example.exit else "")
    yield from ("```", "", "Errors: " + ", ".join(f"`{name}`" for name in method.all_errors), "")


def _undoing(method: Method) -> list[str]:
    """Returns what takes a write back; nothing for a read."""
    if method.undone_by is None:
        return []
    names = " or ".join(f"`{name}`" for name in method.undone_by)
    return [f"undone by {names}" if names else "nothing takes it back"]


def _answer(method: Method) -> Iterator[str]:
    """Yields the result's members, as a table."""
    if method.result is None:
        yield from ("", "It runs until it is ended; its output comes as events.")
        return
    for number, (whole, *rest) in enumerate(forms(method)):
        also = "Or " if number else ""
        yield from ("", f"{also}`data`: {whole.type}. {_cell(whole.meaning)}".rstrip(), "")
        if rest:
            yield from ("| member of `data` | type | meaning |", "| --- | --- | --- |")
            for member in rest:
                yield f"| `{member.path}` | {_cell(member.type)} | {_cell(member.meaning)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _values(enum: list[Any] | None) -> str:
    return f"One of {', '.join(map(str, enum))}." if enum else ""
