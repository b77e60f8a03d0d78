"""Lists what holds for a project when an agent's session begins."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import msgspec

from kbproc.base.settings.config import Config
from kbproc.base.wording import plural, source_changes_in_words
from kbproc.surfaces.hooks import instruction
from kbproc.surfaces.hooks.asking import HookQuestion, Request
from kbproc.surfaces.hooks.memory import Memory
from kbproc.surfaces.hooks.origins import may_quote
from kbproc.surfaces.hooks.protocol import AFRESH, HookEvent
from kbproc.surfaces.hooks.reference import listed, one_line

_MOST_ENTRIES, _MOST_NOTES, _MOST_CHANGES = 20, 20, 15
_MOST_INSTRUCTIONS = 8
_COUNT = {"limit": 1, "fields": ["id"]}
_MOST_STALE = 5
_STALE = "Entries to compare with their sources before you rely on them:"
_NOTE_FIELDS = ["slug", "title", "origin", "source_changed"]
_ANY_CONVERSATION = {"types": ["conversation"], "limit": 1, "fields": ["id"]}
_EVERY_INSTRUCTION = {
    "query": instruction.EVERY,
    "types": ["conversation"],
    "limit": _MOST_INSTRUCTIONS,
    "mode": "fts",
    "text": False,
}
_PAGE = 1000
_MOST_PAGES = 10  # lists are by id, so that the newest stand on the last page


def context(
    asking: HookQuestion,
    config: Config,
    event: HookEvent,
    memory: Memory,
    now: str,
    tokens: int,
    allowed: Collection[str],
) -> str:
    """Returns entries, notes and changes, as reference data; "" where there is nothing.

    A session that is cleared or compacted may be shown again what it was shown before, because its
    context has lost it. Raises the errors of `HookQuestion`, OSError.
    """
    session = memory.session()
    since = session.since if event.source in AFRESH else memory.last_end()
    kbs = {"kb": config.kb} if "kb" in config.origins else {}
    requests: list[Request] = [("knowledge.list", {**kbs, "limit": _PAGE})]
    if config.agent_named_by is not None:
        notes = {"agent": config.actor, "limit": _MOST_NOTES, "fields": _NOTE_FIELDS}
        requests.append(("note.list", notes))
    if since is not None:
        requests.append(("doc.list", {**kbs, "updated_after": since, "limit": _PAGE}))
    more = [("review.list", {**kbs, **_COUNT}), ("doc.list", {**kbs, **_ANY_CONVERSATION})]
    *first_pages, in_review, conversations = asking.all([*requests, *more])
    instructions = _instructions(asking, kbs, allowed) if conversations["data"] else []
    entries, *others = [
        _whole(asking, request, first) for request, first in zip(requests, first_pages, strict=True)
    ]
    notes_list = others.pop(0) if config.agent_named_by is not None else []
    changed = others[0] if since is not None else []
    sections = [
        (instruction.HEADING, [*instruction.lines(instructions)]),
        ("In review:", _in_review(in_review["meta"]["total"])),
        ("Entries:", _entries(entries, allowed)),
        (_STALE, _stale(entries, allowed)),
        (f"Notes of {config.actor}:", _notes(notes_list, allowed)),
        (f"Changed since {since}:", _changes(changed, allowed)),
    ]
    chunk_ids = [] if event.source in AFRESH else session.chunk_ids
    chunk_ids = [*dict.fromkeys([*chunk_ids, *map(instruction.key_of, instructions)])]
    memory.keep(msgspec.structs.replace(session, chunk_ids=chunk_ids, since=since))
    if event.source not in AFRESH:
        memory.keep_end(now)
    text = listed(sections, tokens)
    memory.quoted_ids += [item["id"] for item in entries if f"- {_entry(item)}\n" in text]
    return text


def _instructions(
    asking: HookQuestion, kbs: dict[str, str], allowed: Collection[str]
) -> list[instruction.Item]:
    """Returns the newest standing instructions that the user has given in conversations."""
    params = {**kbs, **_EVERY_INSTRUCTION}
    data = asking.all([("search", params)])[0]["data"]
    return instruction.new_ones(data.get("standing", []), (), allowed)


def _whole(asking: HookQuestion, request: Request, first: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the items of a list's first page and of those after it, but for a list of notes."""
    name, params = request
    items, meta = list(first["data"]), first["meta"]
    for _ in range(_MOST_PAGES - 1):
        if "next_cursor" not in meta or params["limit"] < _PAGE:
            break
        page = asking.all([(name, {**params, "cursor": meta["next_cursor"]})])[0]
        items, meta = items + page["data"], page["meta"]
    return items


def _in_review(total: int) -> list[str]:
    """Returns a line with the number of entries in review, so that a person hears of them."""
    if not total:
        return []
    number = f"{plural(total, 'entry', 'entries')} wait" + "s" * (total == 1)
    return [f"{number} for a person's approval: kbproc review list, or the page. Tell the user."]


def _entries(items: list[dict[str, Any]], allowed: Collection[str]) -> list[str]:
    """Returns lines of the verified entries, then of the newest ones, without the stale ones."""
    items.sort(key=lambda item: (bool(item.get("verified_at")), item["id"]), reverse=True)
    fresh = [item for item in items if not item.get("source_changed") and may_quote(item, allowed)]
    return [_entry(item) for item in fresh[:_MOST_ENTRIES]]


def _stale(items: list[dict[str, Any]], allowed: Collection[str]) -> list[str]:
    """Returns lines of the entries of which a source has changed since, and how many more are."""
    stale = [item for item in items if item.get("source_changed") and may_quote(item, allowed)]
    lines = [_entry(item) for item in stale[:_MOST_STALE]]
    more = len(stale) - len(lines)
    return [*lines, f"and {plural(more, 'entry', 'entries')} more"] if more else lines


def _entry(item: dict[str, Any]) -> str:
    verified = item.get("verified_at")
    checked = f", verified {verified[:10]}" if verified else ""
    changed = source_changes_in_words(item.get("source_changed", []))
    facts = f"entry {item['id']}, confidence {item['confidence']}, {item['created_at'][:10]}"
    facts += f"{checked}; {one_line(changed)}" if changed else checked
    return f"{one_line(item['title'])} ({facts})"


def _notes(items: Iterable[dict[str, Any]], allowed: Collection[str]) -> list[str]:
    return [_note(item) for item in items if may_quote(item, allowed)]


def _note(item: dict[str, Any]) -> str:
    changed = source_changes_in_words(item.get("source_changed", []))
    mark = f"; {one_line(changed)}" if changed else ""
    return f"{one_line(item['title'])} (note {item['slug']}{mark})"


def _changes(items: Iterable[dict[str, Any]], allowed: Collection[str]) -> list[str]:
    """Returns lines of the documents that changed, the latest first; entries stand above."""
    documents = [
        item
        for item in items
        if item["type"] not in {"knowledge", "note"} and may_quote(item, allowed)
    ]
    documents.sort(key=lambda item: item["updated_at"], reverse=True)
    lines = [
        f"{one_line(item['title'])} (document {item['id']}, {item['updated_at'][:16]})"
        for item in documents[:_MOST_CHANGES]
    ]
    more = len(documents) - len(lines)
    return [*lines, f"and {plural(more, 'document')} more"] if more and lines else lines
