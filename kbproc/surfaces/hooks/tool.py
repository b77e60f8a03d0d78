"""Finds what the store says of a file before it is edited, of a command before it runs, and of an
error that has come.

Only a text that names the file, the symbol, the command or the error is quoted: one that is merely
near would take the agent's attention from its work. An unsure hook is silent.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from kbproc.base.patterns import lazy
from kbproc.base.settings.config import Config
from kbproc.surfaces.hooks.act import Act, codes_of
from kbproc.surfaces.hooks.asking import HookQuestion, Request
from kbproc.surfaces.hooks.memory import Memory
from kbproc.surfaces.hooks.origins import may_quote
from kbproc.surfaces.hooks.prompt import Hit, hit_of_note, note_params, quotation_of
from kbproc.surfaces.hooks.reference import quoted

_HITS = 12
_MOST_QUOTED = 2
_TEXT_CHARS = 700  # before it is cut to what follows the name or the error
_BEFORE = 160  # characters that stay of what stands before it
_LEAST_CHARS = 250  # characters of an excerpt; with many more the budget cuts the name off
_SAID = ("knowledge", "note", "markdown", "text")
_BY_HAND = ("knowledge", "note")
_LEAST_RUN = 4  # words of an error that follow each other in a text, too
_RUN_SHARE = 0.75
# An error differs from time to time in places, numbers, digests and quoted names.
_PASSING = lazy(
    r"(?<![\w.~/-])[\w.~-]*/[\w.~/-]*|0x[0-9a-f]+|\b[0-9a-f]{7,}\b|\d+|['\"`][^'\"`]*['\"`]"
)
_NAME = lazy(r"['\"`]([A-Za-z_][\w.-]*)['\"`]")  # the thing that an error is about
_ERROR_WORD = lazy(r"[A-Za-z][\w']*")
_NO_LONGER = r"(?![\w-]|\.\w)"  # the name ends here
_PATH_SIGNS = frozenset("./~-_")


def context(
    asking: HookQuestion,
    config: Config,
    act: Act,
    memory: Memory,
    tokens: int,
    allowed: Collection[str],
    folder: Path,
) -> str:
    """Returns what the store says of an act, as reference data; "" if nothing names it.

    Raises what `HookQuestion` raises, and OSError.
    """
    session = memory.session()
    hits = _hits(asking, config, act)
    new = (hit for hit in hits if str(hit["chunk_id"]) not in session.chunk_ids)
    named = _naming((hit for hit in new if may_quote(hit, allowed)), act)
    best = sorted(named, key=lambda hit: (-hit["size"], -hit["score"]))[:_MOST_QUOTED]
    quotations = [quotation_of(hit, folder) for hit in best]
    text, count = quoted(quotations, tokens, is_first=False)  # the fence says enough
    if count:
        keys = [str(hit["chunk_id"]) for hit in best[:count]]
        memory.quoted_ids += [hit["source"]["document_id"] for hit in best[:count]]
        memory.keep(msgspec.structs.replace(session, chunk_ids=[*session.chunk_ids, *keys]))
    return text


def _hits(asking: HookQuestion, config: Config, act: Act) -> list[Hit]:
    params: dict[str, Any] = {
        "query": act.query,
        "mode": "fts",  # names are words, and an error's words are its name
        "limit": _HITS,
        "types": [*_SAID, "conversation"] if act.error else [*_SAID],
        "text_chars": _TEXT_CHARS,
        "snippet_chars": 20,
        "highlight": False,
        "per_document": 2,
    }
    if "kb" in config.origins:
        params["kb"] = config.kb
    requests: list[Request] = [("search", params)]
    if not act.error and act.subjects:
        by_name = {"query": act.subjects, "types": [*_BY_HAND], "about": True}
        requests.append(("search", {**params, **by_name}))
    if "kb" in config.origins and config.agent_named_by is not None:
        requests.append(("note.search", note_params(act.query, config.actor, mode="fts")))
    hits: dict[Any, Hit] = {}
    for answer in asking.all(requests):
        data = answer["data"]
        results = data["results"] if isinstance(data, dict) else map(hit_of_note, data)
        hits |= {hit["chunk_id"]: hit for hit in results}
    return list(hits.values())


def _naming(hits: Iterable[Hit], act: Act) -> Iterator[Hit]:
    """Yields the hits that name the act, from where they do; `size`: how telling the name is."""
    for hit in hits:
        source = hit["source"]
        if act.path is not None and source["path"] == act.path:
            continue
        at, size = _error_in(hit["text"], act.error) if act.error else _name_in(hit, act)
        if size:
            yield {**hit, "text": _from(hit["text"], at), "size": size}


def _name_in(hit: Hit, act: Act) -> tuple[int, int]:
    """Returns where a hit's text has a name of the act, and the name's length; (0, 0) for none."""
    source = hit["source"]
    for name in act.names:
        if (at := place_of(name, hit["text"], act.path)) is not None:
            return at, len(name)
        if place_of(name, source["title"], act.path) is not None:
            return 0, len(name)
    return 0, max(map(len, hit.get("names", [])), default=0)


def place_of(name: str, text: str, path: str | None) -> int | None:
    """Returns where a text has the name as one of its own; None if it does not.

    A file may be named with more or fewer of its folders, and not with others. `path`: the file.
    """
    if name.casefold() not in text.casefold():  # a pattern takes longer to compile
        return None
    for match in re.finditer(re.escape(name) + _NO_LONGER, text, re.IGNORECASE):
        start = match.start()
        while start and (text[start - 1].isalnum() or text[start - 1] in _PATH_SIGNS):
            start -= 1
        whole = text[start : match.end()].lstrip("./~")
        is_below = path is None or path.endswith(f"/{whole}") or "/" in name
        if whole.lower() == name.lower() or (whole.endswith(f"/{name}") and is_below):
            return start
    return None


def _error_in(text: str, error: str) -> tuple[int, int]:
    """Returns where a text has the error, and how many of its words follow each other there."""
    for code in codes_of(error):
        if (at := text.find(code)) >= 0:
            return at, 100
    names = _NAME.findall(error)
    if names and not any(name in text for name in names):
        return 0, 0
    words = [word.lower() for word in _ERROR_WORD.findall(_PASSING.sub(" ", error))]
    least = max(_LEAST_RUN, round(len(words) * _RUN_SHARE))
    at = 0
    for line in text.splitlines(keepends=True):
        present = [word.lower() for word in _ERROR_WORD.findall(_PASSING.sub(" ", line))]
        if (size := _longest_run(words, present)) >= least:
            return at, size
        at += len(line)
    return 0, 0


def _longest_run(words: list[str], others: list[str]) -> int:
    """Returns how many words follow each other in both lists."""
    best, previous = 0, dict[int, int]()
    for word in words:
        current = {
            place: previous.get(place - 1, 0) + 1
            for place, other in enumerate(others)
            if other == word
        }
        best = max(best, *current.values()) if current else best
        previous = current
    return best


def _from(text: str, at: int) -> str:
    """Returns a text from shortly before the place, so that what follows the name is quoted.

    Where little follows, more of what stands before it is quoted.
    """
    if at <= _BEFORE:
        return text
    line = text.rfind("\n", 0, at) + 1
    begin = line if at - line <= _BEFORE else at - _BEFORE
    begin = min(begin, max(0, len(text) - _LEAST_CHARS))
    if begin == 0:
        return text
    return f"…\n{text[begin:]}" if text[begin - 1] == "\n" else f"…{text[begin:]}"
