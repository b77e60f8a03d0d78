"""docs/reference.md: every method in words.

Owns: which of a declaration is told there, and in which order.
Refuses to know: where the file lies.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from typing import Any

from kbproc.calls.flags import flags_of
from kbproc.calls.members import forms
from kbproc.calls.method import Method
from kbproc.calls.registry import Registry
from kbproc.calls.typed import argv_of


def reference(registry: Registry) -> str:
    lines = ["# Reference", "", "Every method, on the wire and as a command.", ""]
    lines += [
        "An answer is `{data, meta}`; a list that comes in pages is `data` itself, with "
        "`meta.count`, `meta.has_more` and `meta.next_cursor`; findings of a search are "
        "`data.results`, with what is said of all of them beside. In a dry run `data` is null and "
        "`meta.plan` tells what would be done. Members and named values of answers may become "
        "more; those of params are all there are.",
        "",
    ]
    for method in registry.methods.values():
        lines += _section(method)
    return "\n".join(lines).rstrip() + "\n"


def _section(method: Method) -> Iterator[str]:
    kind = {"read": "reads", "write": "writes", "destructive": "destructive"}[method.kind]
    traits = [kind, *(["streams"] if method.streams else []), f"scope `{method.scope}`"]
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


def _answer(method: Method) -> Iterator[str]:
    """The result's members, as a table."""
    if method.result is None:
        yield from ("", "It ends only when it is ended: what it tells comes as events.")
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
