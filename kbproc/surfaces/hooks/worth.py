"""Sums up the counts: what hooks and tools said, and what agents then cited or opened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, get_args

from msgspec import Struct

from kbproc.base.wording import plural
from kbproc.engine.store.hook_counts import Answers, Injection, InjectionKind, Line, Use
from kbproc.surfaces.hooks.uses import QuotedDocument

MOST_DOCUMENTS = 50
Kind = InjectionKind | Literal["mcp"]


class KindCounts(Struct, frozen=True, kw_only=True):
    """The answers of one kind of event. `looks`: how often a hook asked the store; `answers`: how
    often it quoted something, in so many `tokens`. `texts`: the documents that it quoted, once a
    session; `cited`, `opened`: how many of them the agent named or read in that session. The kind
    `mcp` has the searches that agents made over MCP, and what they did with their answers.
    """

    kind: Kind
    looks: int
    answers: int
    tokens: int
    texts: int
    cited: int
    opened: int


class DocumentCounts(Struct, frozen=True, kw_only=True):
    """A document, entry or note: in how many sessions agents got its text, and used it.

    `title`: null where it is not there any more, or the store could not be asked.
    """

    id: int
    noun: str | None
    title: str | None
    sessions: int
    cited: int
    opened: int


class HookWorth(Struct, frozen=True, kw_only=True):
    """The worth of the answers since the first count. `sessions`: all; `read_sessions`: those
    whose log was read at their end, without which nothing counts as cited or opened. `documents`:
    the fifty that agents were told of in most sessions.
    """

    since: str | None
    sessions: int
    read_sessions: int
    kinds: list[KindCounts]
    documents: list[DocumentCounts]


def worth_of(lines: Sequence[Line], documents: Mapping[int, QuotedDocument]) -> HookWorth:
    """Returns the sums. `documents`: what is known of the quoted ones."""
    uses = {line.session: line for line in lines if isinstance(line, Use)}  # the last one has all
    injections = [line for line in lines if isinstance(line, Injection)]
    quoted: dict[InjectionKind, set[tuple[str | None, int]]] = {
        kind: set() for kind in get_args(InjectionKind)
    }
    for line in injections:
        quoted[line.kind].update((line.session, id) for id in line.ids)
    cited = {(use.session, id) for use in uses.values() for id in use.cited}
    opened = {(use.session, id) for use in uses.values() for id in use.opened}
    every = set().union(*quoted.values())
    cited, opened = every & cited, every & opened
    kinds = [_of_kind(kind, injections, pairs, cited, opened) for kind, pairs in quoted.items()]
    for use in uses.values():
        every |= {(use.session, id) for id in use.answers.ids}
        cited |= {(use.session, id) for id in use.answers.cited}
        opened |= {(use.session, id) for id in use.answers.opened}
    return HookWorth(
        since=lines[0].ts if lines else None,
        sessions=len({line.session for line in lines}),
        read_sessions=len(uses),
        kinds=[*kinds, _of_tools([use.answers for use in uses.values()])],
        documents=_of_documents(every, cited, opened, documents),
    )


def _of_tools(answers: Sequence[Answers]) -> KindCounts:
    return KindCounts(
        kind="mcp",
        looks=sum(one.calls for one in answers),
        answers=sum(one.answers for one in answers),
        tokens=sum(one.tokens for one in answers),
        texts=sum(len(one.ids) for one in answers),
        cited=sum(len(one.cited) for one in answers),
        opened=sum(len(one.opened) for one in answers),
    )


def _of_kind(
    kind: InjectionKind,
    injections: Iterable[Injection],
    pairs: set[tuple[str | None, int]],
    cited: set[tuple[str | None, int]],
    opened: set[tuple[str | None, int]],
) -> KindCounts:
    own = [line for line in injections if line.kind == kind]
    return KindCounts(
        kind=kind,
        looks=len(own),
        answers=sum(line.tokens > 0 for line in own),
        tokens=sum(line.tokens for line in own),
        texts=len(pairs),
        cited=len(pairs & cited),
        opened=len(pairs & opened),
    )


def most_quoted(lines: Iterable[Line]) -> list[int]:
    """Returns the documents that most sessions were told of, the first fifty."""
    pairs = {
        (line.session, id)
        for line in lines
        for id in (line.ids if isinstance(line, Injection) else line.answers.ids)
    }
    return [id for id, _ in _ranked(pairs)]


def _ranked(pairs: Iterable[tuple[str | None, int]]) -> list[tuple[int, int]]:
    counts = Counter(id for _, id in pairs)
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:MOST_DOCUMENTS]


def _of_documents(
    every: set[tuple[str | None, int]],
    cited: set[tuple[str | None, int]],
    opened: set[tuple[str | None, int]],
    documents: Mapping[int, QuotedDocument],
) -> list[DocumentCounts]:
    citations = Counter(id for _, id in cited)
    openings = Counter(id for _, id in opened)
    return [
        DocumentCounts(
            id=id,
            noun=documents[id].noun if id in documents else None,
            title=documents[id].title if id in documents else None,
            sessions=sessions,
            cited=citations[id],
            opened=openings[id],
        )
        for id, sessions in _ranked(every)
    ]


# ------------------------------------------------------------------- for people

_HEADS = ("event", "looks", "answers", "tokens", "texts", "cited", "opened")


def for_people(worth: HookWorth) -> str:
    """Returns the sums as two tables."""
    if worth.since is None:
        return (
            "Nothing is counted. kbproc hook install CLIENT --count turns it on; the counts are "
            "ids and numbers in the store's folder, and kbproc hook forget deletes them.\n"
        )
    first = (
        f"Since {worth.since[:10]}: {plural(worth.sessions, 'session')}, of which "
        f"{worth.read_sessions} could be looked through at their end."
    )
    kinds = [
        (one.kind, *map(str, (one.looks, one.answers, one.tokens, one.texts)), *_uses(one))
        for one in worth.kinds
    ]
    documents = [
        (f"{one.noun or 'document'} {one.id}", str(one.sessions), *_uses(one), one.title or "–")
        for one in worth.documents
    ]
    tables = [_table([_HEADS, *kinds])]
    if documents:
        tables.append(_table([("text", "sessions", "cited", "opened", "title"), *documents]))
    return "\n".join([first, "", *tables])


def _uses(one: KindCounts | DocumentCounts) -> tuple[str, str]:
    return str(one.cited), str(one.opened)


def _table(rows: Sequence[Sequence[str]]) -> str:
    """Returns rows as aligned columns; numbers stand at the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if rows[-1][place].isdecimal() else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("   ".join(cells).rstrip())
    return "\n".join(lines) + "\n"
