"""Finds what the store knows of a prompt, and quotes it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Any

import msgspec

from kbproc.base.settings.config import Config
from kbproc.surfaces.hooks.asking import Asking, Request
from kbproc.surfaces.hooks.memory import Memory
from kbproc.surfaces.hooks.origins import quotable
from kbproc.surfaces.hooks.reference import Quotation, quoted

_COMMAND = re.compile(r"[/!#][\w:-]+(\s|$)")  # a slash command is no question
_OPERATORS = re.compile(r"[\"“”„«»]|(?<!\S)-+(?=\S)")
_WORD = re.compile(r"[^\W_]{2,}")
_HEAD, _TAIL = 1200, 700  # characters of a long prompt that are searched for
_FEWEST_WORDS = 2  # telling ones, because "go on" is no question
_ENOUGH_WORDS = 12  # some of which tell something in any case
_UNSPACED = re.compile("[\u0e00-\u0e7f\u3040-\u9fff]{2}")
_HITS = 8
_TEXT_CHARS = 480
_SHARE = 0.6  # a hit needs this share of the best hit's score


def context(
    asking: Asking,
    config: Config,
    query: str,
    memory: Memory,
    tokens: int,
    allowed: Collection[str],
) -> str:
    """Returns what the store knows of the query, as reference data; "" if it knows nothing.

    Texts that the session was shown before are left out. Raises the errors of `Asking`, OSError.
    """
    hits = _hits(asking, config, query)
    session = memory.session()
    # Chunks are remembered, because the excerpt of one differs from query to query.
    new = {str(hit["chunk_id"]): hit for hit in hits}
    new = {name: hit for name, hit in new.items() if name not in session.chunk_ids}
    items = ({**hit["source"], "origin": hit.get("origin")} for hit in new.values())
    ids = quotable(asking, items, allowed) if new else set()
    new = {name: hit for name, hit in new.items() if hit["source"]["document_id"] in ids}
    text, count = quoted((_quotation(hit) for hit in new.values()), tokens)
    if count:
        chunk_ids = [*session.chunk_ids, *list(new)[:count]]
        memory.keep(msgspec.structs.replace(session, chunk_ids=chunk_ids))
    return text


def query_of(prompt: str) -> str:
    """Returns the query for a prompt; "" for a command and for a prompt that asks nothing."""
    text = prompt.strip()
    if _COMMAND.match(text):
        return ""
    if len(text) > _HEAD + _TAIL:
        text = f"{text[:_HEAD]} {text[-_TAIL:]}"
    return "" if _is_short(text) else " ".join(_OPERATORS.sub(" ", text).replace("\0", " ").split())


def _is_short(text: str) -> bool:
    """Returns whether the text has too few words that tell something; CJK texts have none apart."""
    words = {word.lower() for word in _WORD.findall(text)}
    if len(words) >= _ENOUGH_WORDS or _UNSPACED.search(text):
        return False
    from kbproc.base.text.analysis import STOP_WORDS  # imported late, because it takes a while

    return len(words - STOP_WORDS) < _FEWEST_WORDS


def _hits(asking: Asking, config: Config, query: str) -> list[dict[str, Any]]:
    """Returns the good hits, best first; none where the store does not know."""
    params: dict[str, Any] = {
        "query": query,
        "limit": _HITS,
        "text_chars": _TEXT_CHARS,
        "snippet_chars": 20,
        "highlight": False,
        "distinct": True,
        "per_document": 2,
    }
    if not asking.is_attached:
        params["mode"] = "fts"  # because loading the model takes longer than all the rest
    requests: list[Request] = [("search", params)]
    if "kb" in config.origins:
        requests = [("search", {**params, "kb": config.kb})]
        if config.agent_named_by is not None:
            notes = {"query": query, "agent": config.actor, "limit": 2, "text": True}
            requests.append(("note.search", notes))
    results = [result["data"] for result in asking.all(requests)]
    return list(_good(results))


def _good(results: Iterable[dict[str, Any]]) -> Iterable[dict[str, Any]]:
    for result in results:
        if result["confidence"] == "none":
            continue
        best = max((hit["score"] for hit in result["results"]), default=0.0)
        yield from (hit for hit in result["results"] if hit["score"] >= best * _SHARE)


def _quotation(hit: dict[str, Any]) -> Quotation:
    source = hit["source"]
    kind = {"knowledge": "entry", "note": "note"}.get(source["type"], "document")
    path = f"{source['path']}, " if source["path"] else ""
    place = f"{path}{kind} {source['document_id']}"
    return Quotation(cite=source["cite"], place=place, text=hit["text"])
