"""Finds what the store knows of a prompt, and quotes it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from kbproc.base.patterns import lazy
from kbproc.base.settings.config import Config
from kbproc.base.wording import source_changes_in_words
from kbproc.engine.events.origin import FOREIGN
from kbproc.surfaces.hooks import instruction
from kbproc.surfaces.hooks.asking import HookQuestion, Request
from kbproc.surfaces.hooks.memory import Memory
from kbproc.surfaces.hooks.origins import may_quote
from kbproc.surfaces.hooks.reference import Quotation, one_line, quoted

Hit = dict[str, Any]
# A command of a client is no question, be it typed or as Claude Code writes it down.
_COMMAND = lazy(r"[/!#][\w:.-]+(?=\s|$)|<command-(?:name|message|args)>|<local-command-")
# Gemini CLI puts the contexts of a session's start before the first prompt.
_CONTEXT = lazy(r"\A(?:<hook_context>.*?</hook_context>\s*)+", re.DOTALL)
_OPERATORS = lazy(r"[\"“”„«»]|(?<!\S)-+(?=\S)")
_WORD = lazy(r"[^\W_]{2,}")
_HEAD, _TAIL = 1200, 700  # characters of a long prompt that are searched for
_FEWEST_WORDS = 2  # telling ones, because "go on" is no question
_ENOUGH_WORDS = 12  # some of which tell something in any case
_UNSPACED = lazy("[\u0e00-\u0e7f\u3040-\u9fff]{2}")
_HITS = 24  # because some may be foreign
_MOST_QUOTED = 8
_NOTES, _LEAST_OF_NOTE = 2, 0.35  # at about this score a text is likely to answer
_TEXT_CHARS = 480
_SHARE_OF_STANDING = 3  # instructions get a third of the budget at most
# A hit needs this share of the best hit's score; a turn more, because its session's best score is a
# part of its own. Fitted by `python -m bench.conversations`.
_SHARE, _SHARE_OF_TURN = 0.6, 0.82


def context(
    asking: HookQuestion,
    config: Config,
    query: str,
    memory: Memory,
    tokens: int,
    allowed: Collection[str],
    folder: Path,
) -> str:
    """Returns what the store knows of the query, as reference data; "" if it knows nothing.

    Texts that the session was shown before are left out. `folder`: where the agent works, whose
    files are named by their relative paths. Raises what `HookQuestion` raises, and OSError.
    """
    session = memory.session()
    hits, instructions = _hits(asking, config, query)
    # Chunks are remembered, because the excerpt of one differs from query to query.
    new = [hit for hit in hits if str(hit["chunk_id"]) not in session.chunk_ids]
    # Foreign texts leave before the best are chosen, so that they crowd out none of the user's own.
    best = list(_telling(hit for hit in new if may_quote(hit, allowed)))[:_MOST_QUOTED]
    instructions = instruction.new_ones(instructions, session.chunk_ids, allowed)
    before, number = instruction.section(instructions, tokens // _SHARE_OF_STANDING)
    is_first = not session.chunk_ids
    if is_first:
        before += _descriptions(hits, best)
    quotations = [quotation_of(hit, folder) for hit in best]
    text, count = quoted(quotations, tokens, is_first=is_first, before=before)
    if count or number:
        keys = [*map(instruction.key_of, instructions[:number])]
        keys += [str(hit["chunk_id"]) for hit in best[:count]]
        memory.quoted_ids += [hit["source"]["document_id"] for hit in best[:count]]
        chunk_ids = [*session.chunk_ids, *keys]
        memory.keep(msgspec.structs.replace(session, chunk_ids=chunk_ids))
    return text


def _telling(hits: Iterable[Hit]) -> Iterator[Hit]:
    """Yields the hits, of console output only the best one: the next is mostly more of the same."""
    from kbproc.base.text.verbatim import is_output  # imported late, because it takes a while

    has_output = False
    for hit in hits:
        output = is_output(hit["text"])
        if not (output and has_output):
            yield hit
        has_output = has_output or output


def query_of(prompt: str) -> str:
    """Returns the query for a prompt; "" for a command and for a prompt that asks nothing."""
    text = _CONTEXT.sub("", prompt.strip()).strip()
    if _COMMAND.match(text):
        return ""
    if len(text) > _HEAD + _TAIL:
        text = f"{text[:_HEAD]} {text[-_TAIL:]}"
    if not _telling_words(text):
        return ""
    return " ".join(_OPERATORS.sub(" ", text).replace("\0", " ").split())


def _is_short(query: str) -> bool:
    """Returns whether a query has so few telling words that only a name makes it a question."""
    return _telling_words(query) < _FEWEST_WORDS


def _telling_words(text: str) -> int:
    """Returns how many words tell something, or enough; CJK texts have none apart."""
    words = {word.lower() for word in _WORD.findall(text)}
    if len(words) >= _ENOUGH_WORDS or _UNSPACED.search(text):
        return _ENOUGH_WORDS
    from kbproc.base.text.analysis import STOP_WORDS  # imported late, because it takes a while

    return len(words - STOP_WORDS)


def _hits(
    asking: HookQuestion, config: Config, query: str
) -> tuple[list[Hit], list[instruction.Item]]:
    """Returns the good hits, best first, and the standing instructions that bear on the query.

    There are no hits where the store does not know.
    """
    params: dict[str, Any] = {
        "query": query,
        "limit": _HITS,
        "text_chars": _TEXT_CHARS,
        "snippet_chars": 20,
        "highlight": False,
        "per_document": 2,
        "about": True,
    }
    if not asking.is_attached:
        params["mode"] = "fts"  # because loading the model takes longer than all the rest
    requests: list[Request] = [("search", params)]
    if "kb" in config.origins:
        requests = [("search", {**params, "kb": config.kb})]
        if config.agent_named_by is not None:
            mode = None if asking.is_attached else "fts"
            requests.append(("note.search", note_params(query, config.actor, mode=mode)))
    answer, *notes = asking.all(requests)
    hits = [hit_of_note(note) for result in notes for note in result["data"]]
    data = answer["data"]
    instructions = data.get("standing", [])
    best = max((hit["score"] for hit in data["results"]), default=0.0)
    is_known = data["confidence"] != "none" and not _is_short(query)
    good = [hit for hit in data["results"] if is_known and hit["score"] >= best * _share(hit)]
    named = [hit for hit in data["results"] if hit.get("names") and hit not in good]
    if named or any(hit.get("names") for hit in good):  # they are in the order of the names
        return [hit for hit in data["results"] if hit in named or hit in good] + hits, instructions
    return sorted([*hits, *good], key=lambda hit: hit["score"], reverse=True), instructions


def _share(hit: Hit) -> float:
    return _SHARE_OF_TURN if hit["source"]["type"] == "conversation" else _SHARE


def note_params(query: str, agent: str, *, mode: str | None) -> dict[str, Any]:
    """Returns the params of a search of an agent's notes, which lie in no knowledge base."""
    bounds = {"limit": _NOTES, "min_score": _LEAST_OF_NOTE, "snippet_chars": _TEXT_CHARS}
    return {"query": query, "agent": agent, **bounds, **({"mode": mode} if mode else {})}


def hit_of_note(note: dict[str, Any]) -> Hit:
    section = f", § {note['section']}" if note["section"] else ""
    source = {
        "document_id": note["id"],
        "type": "note",
        "path": None,
        "title": note["title"],
        "dated": note["dated"],
        "cite": f"{note['title']}{section}",
    }
    return {
        "chunk_id": f"{note['id']} {note['updated_at']}",
        "score": note["score"],
        "text": note["snippet"],
        "source": source,
        "origin": note.get("origin"),
    }


def _descriptions(hits: Iterable[Hit], quoted_hits: Iterable[Hit]) -> str:
    """Returns a line for each knowledge base of the quoted hits, that says what it is for."""
    texts = {
        hit["source"]["kb"]: hit["source"]["kb_description"]
        for hit in hits
        if "kb_description" in hit["source"]
    }
    kbs = dict.fromkeys(hit["source"].get("kb") for hit in quoted_hits)
    return "".join(f"> {kb}: {one_line(texts[kb])}\n" for kb in kbs if kb in texts)


def quotation_of(hit: Hit, folder: Path) -> Quotation:
    """Returns a hit as it is quoted, its file by its path from the agent's folder."""
    source = hit["source"]
    kind = {"knowledge": "entry", "note": "note"}.get(source["type"], "document")
    superseded = f", which superseded entry {hit['replaces']}" if "replaces" in hit else ""
    changed = source_changes_in_words(hit.get("source_changed", []))
    remarks = [one_line(text) for text in (changed, *_conflicts(hit)) if text]
    # The log of a session is no file to read on in: it is written for the client alone.
    path = None if source["type"] == "conversation" else source["path"] or None
    return Quotation(
        cite=source["cite"],
        place=", ".join([f"{kind} {source['document_id']}{superseded}", *remarks]),
        text=hit["text"],
        path=path and path.removeprefix(f"{folder}/"),
        title=source["title"],
        dated=source["dated"],
    )


def _conflicts(hit: Hit) -> Iterator[str]:
    """Yields where another hit says otherwise; not of a foreign one, because the other is, too."""
    if hit.get("origin") not in FOREIGN:
        yield from (conflict["says"] for conflict in hit.get("conflicts", ()))
