"""The reference of methods, the page of errors and the table of commands, as Markdown.

Owns: docs/reference.md, docs/errors.md and a block of SKILL.md, all made from the declarations.
Refuses to know: where files lie.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from typing import Any

from kbproc.base.errors import ERRORS, EXIT_CODES
from kbproc.calls.flags import flags_of
from kbproc.calls.members import forms
from kbproc.calls.method import Method
from kbproc.calls.registry import Registry
from kbproc.calls.typed import argv_of, usage_of

OF_RETRYABLE = {True: "yes", False: "no", None: "it depends, see detail"}


def commands(registry: Registry) -> str:
    """A table of commands with one example each, that can be followed as it stands."""
    lines = ["| command | what | example |", "| --- | --- | --- |"]
    for method in registry.methods.values():
        command = method.name.replace(".", " ")
        lines.append(f"| `{command}` | {method.summary} | {_followed(method)} |")
    return "\n".join(lines)


def _followed(method: Method) -> str:
    """An example that succeeds, or asks for a person; else only how it is written."""
    for wanted in (0, 10):
        for example in method.examples:
            line = shlex.join(argv_of(method, example.params))
            if example.exit == wanted and "\n" not in line:
                return f"`{line}`" + (" (a person approves: exit 10)" if wanted else "")
    return f"`{usage_of(method).removeprefix('Usage: ')}`".replace(" [FLAGS]", "")


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
            f"{OF_RETRYABLE[row.retryable]}.",
            "",
            row.hint,
        ]
    return "\n".join(lines) + "\n"


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
    also = f" and `{method.also_needs}`" if method.also_needs else ""
    traits = [kind, *(["streams"] if method.streams else []), f"scope `{method.scope}`{also}"]
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
