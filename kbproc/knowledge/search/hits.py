"""Builds the results of a search and the explanation of a score, and lays them out for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from kbproc.base.host import Host
from kbproc.base.layout import HitLayout, Hits
from kbproc.base.structs import common_members
from kbproc.base.text.passage import Passage, passage
from kbproc.base.text.snippet import Snippet
from kbproc.base.times import dated
from kbproc.base.values import Percent, Share
from kbproc.base.wording import plural
from kbproc.engine.events.document import CONVERSATION
from kbproc.engine.events.origin import Origin
from kbproc.engine.models.calibration import UNSCALED, Scale
from kbproc.engine.projections.catalog.rows import HitRow, marks_of
from kbproc.knowledge.documents.document import SourceChange
from kbproc.knowledge.documents.entry import status_in_words
from kbproc.knowledge.search import fusion
from kbproc.knowledge.search.candidates import Candidate
from kbproc.knowledge.search.conflicts import Conflict
from kbproc.knowledge.search.probability import Confidence, Evidence
from kbproc.knowledge.search.times import TimeFactor, said_in
from kbproc.knowledge.search.turns import TurnHit, turn_layout

if TYPE_CHECKING:
    from kbproc.engine.models.fluency import Fluency
    from kbproc.knowledge.search.conversations import SpeechFactor
    from kbproc.knowledge.search.rereading import Judgement
    from kbproc.knowledge.search.stress import Stress

SECTION = "§ "  # before a section in a cite


class HitSource(Struct, kw_only=True, frozen=True):
    """The place of a hit. `chunk_index` counts from 0.

    Pages, section and lines are those of the chunk's best passage, or of the whole chunk if none
    of its words match; only text sources have lines. `cite`: a citation of the source.

    `said_at`: when the turn of a conversation was said. `modified_at`: when the file was last
    changed, for a file in a git repository the date of the commit that has its bytes. `stored_at`:
    when the store got it. `dated`: the first of the three that is known, as a day, and how long ago
    that was. `kb_description`: of the knowledge base, with the first hit from it.
    """

    document_id: int
    title: str
    path: str | None
    type: str
    page: int | None
    section: str | None
    chunk_index: int
    total_chunks: int
    tags: list[str]
    kb: str
    page_end: int | None
    start_line: int | None
    end_line: int | None
    cite: str
    stored_at: str | msgspec.UnsetType = msgspec.UNSET
    dated: str | msgspec.UnsetType = msgspec.UNSET
    modified_at: str | msgspec.UnsetType = msgspec.UNSET
    said_at: str | msgspec.UnsetType = msgspec.UNSET
    kb_description: str | msgspec.UnsetType = msgspec.UNSET


class Breakdown(Struct, kw_only=True, frozen=True):
    """The part of each channel in the score; null if the channel takes no part.

    `rerank`: the judgement of a hit that the cross-encoder has read; with fusion rerank it is the
    whole score.
    """

    fts: Share | None
    vector: Share | None
    rerank: Share | msgspec.UnsetType = msgspec.UNSET


class Hit(Struct, kw_only=True, frozen=True, omit_defaults=True):
    """A hit. `highlights`: character offsets into `snippet`. `explain`: only on request.

    `origin`: who the text is from. `verified_at`: when a person found that an entry holds. `head`:
    for a superseded entry, the last entry of its chain. `repeated_by`: with `distinct`, the
    ids of chunks that were left out because they say nearly the same. `file_gone`: true where the
    document's file is no longer there, so that another document may have its newer text.
    `replaces`: the superseded entry for which it answers, because the query's words stand there.
    `names`: with `about`, its names that stand in the query. `source_changed`: what an entry was
    derived from and is no longer as it was then; its score is a step lower. `valid_from`,
    `valid_to`: when its writer says that it began and ceased to be true. `conflicts`: hits of this
    page that give another value for what it says, and are newer or as old.
    """

    chunk_id: int
    score: Share
    score_breakdown: Breakdown
    text: str
    snippet: str
    highlights: list[tuple[int, int]]
    source: HitSource
    confidence: Percent | None
    expires_at: str | None
    superseded_by: int | None
    origin: Origin
    verified_at: str | None
    head: int | msgspec.UnsetType = msgspec.UNSET
    repeated_by: list[int] | msgspec.UnsetType = msgspec.UNSET
    file_gone: bool | msgspec.UnsetType = msgspec.UNSET
    replaces: int | msgspec.UnsetType = msgspec.UNSET
    names: list[str] | msgspec.UnsetType = msgspec.UNSET
    source_changed: list[SourceChange] | msgspec.UnsetType = msgspec.UNSET
    valid_from: str | msgspec.UnsetType = msgspec.UNSET
    valid_to: str | msgspec.UnsetType = msgspec.UNSET
    conflicts: list[Conflict] | msgspec.UnsetType = msgspec.UNSET
    explain: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET


class Results(Struct, kw_only=True, frozen=True):
    """A page of hits. `confidence`: the level of the chance that the best hit is an answer."""

    query: str
    results: list[Hit]
    total_matches: int
    total_is_exact: bool
    returned: int
    confidence: Confidence


class StandingInstruction(Struct, kw_only=True, frozen=True):
    """An instruction or a preference of a person that holds on, in their words.

    `said_at`: when they said it, or when the conversation was added, where it has no times.
    `origin`: who the conversation is from.
    """

    text: str
    cite: str
    document_id: int
    chunk_id: int
    said_at: str
    origin: Origin


class ResultsBeside(Results, kw_only=True, frozen=True):
    """A page of hits, and what stands beside them.

    `turns`: the best turns of the store's own sessions, questions and answers; only with the type
    conversation. They are found by their words alone, are not in the counts, and have the same
    scale of scores. `standing`: instructions and preferences that a person gave in conversations,
    and that bear on the query: five at most, or those that the query requests.
    """

    turns: list[TurnHit] | msgspec.UnsetType = msgspec.UNSET
    standing: list[StandingInstruction] | msgspec.UnsetType = msgspec.UNSET


def with_gone_files(results: Results) -> Results:
    """Returns the results, of which hits say where their files are gone now."""
    file_paths = [hit.source.path for hit in results.results if hit.source.path]
    if not file_paths:
        return results
    from kbproc.knowledge.documents import moves  # not above: a store of texts needs none

    gone_paths = moves.vanished(file_paths)
    if not gone_paths:
        return results
    hits = [
        msgspec.structs.replace(hit, file_gone=True) if hit.source.path in gone_paths else hit
        for hit in results.results
    ]
    return msgspec.structs.replace(results, results=hits)


_hit_of_row = common_members(Hit, HitRow, but=("head", "valid_from", "valid_to"))


def hit_of(
    fused: fusion.Fused,
    row: HitRow,
    excerpt: Snippet,
    *,
    now: str,
    rerank: float | None,
    repeated: list[int] | None,
    kb_description: str | None = None,
    replaces: int | None = None,
    names: list[str] | None = None,
    source_changed: list[SourceChange] | None = None,
    explain: dict[str, Any] | msgspec.UnsetType,
) -> Hit:
    return Hit(
        score=fused.score,
        score_breakdown=Breakdown(
            fts=fused.fts,
            vector=fused.vector,
            rerank=msgspec.UNSET if rerank is None else rerank,
        ),
        snippet=excerpt.text,
        highlights=excerpt.highlights,
        source=_source_of(row, excerpt, now, kb_description),
        **_hit_of_row(row),
        head=msgspec.UNSET if row.superseded_by is None or row.head is None else row.head,
        repeated_by=repeated or msgspec.UNSET,
        replaces=msgspec.UNSET if replaces is None else replaces,
        names=names or msgspec.UNSET,
        source_changed=source_changed or msgspec.UNSET,
        valid_from=row.valid_from or msgspec.UNSET,
        valid_to=row.valid_to or msgspec.UNSET,
        explain=explain,
    )


# A passage has a page and a section of its own.
_source_of_row = common_members(HitSource, HitRow, but=("path", "page", "section", "modified_at"))


def _source_of(row: HitRow, excerpt: Snippet, now: str, kb_description: str | None) -> HitSource:
    place = _place_of(row, *(excerpt.best or (0, len(row.text))))
    section = place.section if excerpt.best else row.section
    said_at = said_in(section) if row.type == CONVERSATION else None
    stored_at = row.created_at if row.type == "knowledge" else row.updated_at
    return HitSource(
        **_source_of_row(row),
        path=row.path or row.url,
        page=place.page,
        section=section,
        chunk_index=row.idx,
        total_chunks=row.chunk_count,
        page_end=place.page_end,
        start_line=place.start_line,
        end_line=place.end_line,
        cite=_cite(row, place, section),
        stored_at=stored_at,
        dated=dated(said_at or row.modified_at or stored_at, now),
        modified_at=row.modified_at or msgspec.UNSET,
        said_at=said_at or msgspec.UNSET,
        kb_description=kb_description or msgspec.UNSET,
    )


def cite_at(row: HitRow, start: int, end: int) -> str:
    """Returns a citation of the characters from `start` to before `end`."""
    place = _place_of(row, start, end)
    return _cite(row, place, place.section)


def _place_of(row: HitRow, start: int, end: int) -> Passage:
    """Returns the place in the source of the characters from `start` to before `end`."""
    if row.marks is None:
        return Passage(page=row.page, page_end=row.page, section=row.section)
    return passage(marks_of(row.marks), row.text, start, end)


def _cite(row: HitRow, place: Passage, section: str | None) -> str:
    """Returns the title, followed by a page, else a section, else lines of the file."""
    parts = [row.title]
    if row.type == "knowledge":
        return row.title
    if place.page is not None:
        one, many = ("slide ", "slides ") if row.type == "slides" else ("p. ", "pp. ")
        parts.append(_range(one, many, place.page, place.page_end))
    elif section is not None:
        parts.append(f"{SECTION}{section}")
    if row.path and place.start_line is not None and (len(parts) == 1 or row.type == "code"):
        one, many = ("row ", "rows ") if row.type == "table" else ("line ", "lines ")
        parts.append(_range(one, many, place.start_line, place.end_line))
    return ", ".join(parts)


def _range(one: str, many: str, first: int, last: int | None) -> str:
    return f"{one}{first}" if last in (None, first) else f"{many}{first}–{last}"


def explanation(
    candidate: Candidate,
    terms: Sequence[Any],
    *,
    bound: float,
    weights: fusion.Weights,
    fluency: Fluency,
    scale: Scale,
    stress: Stress | None,
    time: TimeFactor | None,
    speech: SpeechFactor | None,
    evidence: Evidence,
    by_rank: bool,
    judgement: Judgement | None,
    sees_all: bool,
) -> dict[str, Any]:
    """Explains how a score came about.

    `sees_all`: False leaves out how rare words are, because that would reveal hidden texts.
    """
    formula = (
        {"fusion": "rrf", "k": fusion.RRF_K}
        if by_rank
        else {
            "fusion": "blend" if judgement is None else "rerank",
            "fts_weight": weights.fts,
            "vector_weight": weights.vector,
        }
    )
    words = [asdict(term) if sees_all else {"word": term.word, "form": term.form} for term in terms]
    chance = {"chance": evidence.chance, "cosine": evidence.cosine}
    shown_evidence = evidence if sees_all else chance
    factors = {
        "rerank": judgement,
        "stress": stress,
        "time": time,
        "speech": speech,
        "evidence": shown_evidence,
    }
    return {
        "fts": {
            "rank": candidate.fts_rank,
            "bm25": candidate.bm25,
            **({"bound": bound} if sees_all else {}),
            "terms": words,
        },
        "vector": {
            "rank": candidate.vector_rank,
            "cosine": candidate.cosine,
            "fluency": msgspec.to_builtins(fluency),
            **({} if scale == UNSCALED else {"scale": msgspec.to_builtins(scale)}),
        },
        "formula": formula,
        **{name: msgspec.to_builtins(factor) for name, factor in factors.items() if factor},
    }


# ------------------------------------------------------------------ for people


_FROM_ELSEWHERE = frozenset({"tool", "web", "import"})
_MOST_WEAK = 3  # hits shown if the store seems to have no answer


def as_hits(results: dict[str, Any], params: dict[str, Any]) -> Hits:
    """Returns hits for people; only three weak ones, unless the params name limit or offset."""
    first, hits = int(params.get("offset", 0)) + 1, results["results"]
    is_weak = results["confidence"] == "none" and not ("limit" in params or "offset" in params)
    if is_weak:
        hits = hits[:_MOST_WEAK]
    return Hits(
        hits=[*(_hit(hit, params) for hit in hits), *map(turn_layout, results.get("turns", ()))],
        head="\n".join([_head(results, first, len(hits)), *_standing_lines(results)]),
        first=first,
    )


def _standing_lines(results: dict[str, Any]) -> Iterator[str]:
    for one in results.get("standing", ()):
        yield f"Said before: “{one['text']}” ({one['cite']})"


def _hit(hit: dict[str, Any], params: dict[str, Any]) -> HitLayout:
    source = hit["source"]
    tags = f" [{', '.join(source['tags'])}]" if source["tags"] else ""
    labels = f" [{source['type']}]{tags}"
    if hit["origin"] in _FROM_ELSEWHERE:
        labels += f" from {hit['origin']}"
    if source["type"] == "knowledge":
        labels += f" #{source['document_id']}, {', '.join(_facts(hit, params))}"
    return HitLayout(
        score=hit["score"],
        title=title_of(source),
        labels=labels,
        snippet=hit["snippet"],
        highlights=hit["highlights"],
        more=hit.get("explain") or {},
        where=_where(hit),
    )


def _where(hit: dict[str, Any]) -> str:
    """Returns the ids and the file or page of a hit, for further requests."""
    source = hit["source"]
    note = " (the file is gone)" if hit.get("file_gone") else ""
    path = f"  {source['path']}{note}" if source["path"] else ""
    about = f"\n{source['kb']}: {source['kb_description']}" if "kb_description" in source else ""
    ids = f"document {source['document_id']}, chunk {hit['chunk_id']}"
    lines = "".join(f"\n{one['says']}" for one in hit.get("conflicts", ()))
    return f"{ids}, {source['dated']}{path}{lines}{about}"


def _facts(hit: dict[str, Any], params: dict[str, Any]) -> Iterator[str]:
    """Returns the facts of an entry. In a search of the past, none is shown as expired."""
    yield f"confidence {hit['confidence']}"
    if (old := hit.get("replaces")) is not None:
        yield f"in place of #{old}"
    now = "" if params.get("as_of") is not None else Host().now()
    yield from status_in_words(hit, expired=str(hit["expires_at"]) <= now)


def _head(results: dict[str, Any], first: int, count: int) -> str:
    total = results["total_matches"]
    weak = "weak " if count and results["confidence"] == "none" else ""
    matches = plural(total, f"{weak}match", f"{weak}matches")
    last = first + count - 1
    showing = f"top {count}" if first == 1 else f"{first}–{last}" if last > first else f"{last}"
    more = len(results["results"]) - count
    more_by = f"; --limit {count + more} shows {more} more" if more else ""
    tail = f", showing {showing}{more_by}" if count else ""
    return f'Search: "{results["query"]}" ({matches}{tail})'


def title_of(source: dict[str, Any]) -> str:
    """Returns a title with page and section, as in a citation."""
    page = ""
    if (first := source.get("page")) is not None:
        last = source.get("page_end", first)
        page = f" (p.{first})" if last == first else f" (p.{first}–{last})"
    section = f" §{source['section']}" if source["section"] else ""
    return f"{source['title']}{page}{section}"
