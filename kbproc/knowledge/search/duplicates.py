"""Groups entries that say nearly the same, or the opposite, in other words.

Two entries are compared by their titles and first chunks. A score is the mean of their cosine and
of the share of their common words; without vectors it is that share. Opposites have nearly the
same words, so a pair also names a number or a negation that differs.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Literal, NamedTuple

from msgspec import Struct

from kbproc.base.errors import Retry
from kbproc.base.structs import common_members
from kbproc.base.text.analysis import words
from kbproc.base.text.stems import stems
from kbproc.base.values import Share
from kbproc.engine.events.origin import Origin, trust_of
from kbproc.engine.projections.catalog.filters import DocumentFilter
from kbproc.engine.projections.catalog.rows import EntryRow
from kbproc.engine.store.snapshot import Snapshot
from kbproc.knowledge.search.fusion import PLACES

if TYPE_CHECKING:
    from kbproc.engine.projections.vectors.search import VectorSnapshot

# all-MiniLM-L6-v2 gives each of 15 pairs with the same content .556 or more, and each of 18 pairs
# on one topic .435 or less: see near_pairs.json in tests/search.
NEAR = 0.55
MOST_ENTRIES = 5000
_RAREST = 10  # words by which entries without vectors meet
_MOST_MET = 50  # entries that one such word brings
_MOST_NEAR = 20  # neighbours by meaning of one entry
_LEAST_COSINE = 0.4

Relation = Literal["same", "opposite"]
Difference = Literal["number", "negation"]

_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_NEGATION = re.compile(
    r"\b(?:not|cannot|never|no|none|nobody|nothing|nicht|keine?[nmrs]?|nie|niemals|jamais|pas|nunca|"
    r"non|не|нет|никогда)\b|n['’]t\b"
)


class GroupedEntry(Struct, kw_only=True, frozen=True):
    """An entry of a group, without its text."""

    id: int
    title: str
    origin: Origin
    created_by: str
    created_at: str
    verified_at: str | None


_of_row = common_members(GroupedEntry, EntryRow)


class Duplicate(GroupedEntry, kw_only=True, frozen=True):
    """An entry that is near the group's first. `relation` opposite: see `differs_in`."""

    score: Share
    relation: Relation
    differs_in: list[Difference]


class DuplicateGroup(Struct, kw_only=True, frozen=True):
    """Entries of one knowledge base that are near one of them.

    `stays`: the entry that the plan leaves: a verified one, else of the best origin, else the
    newest. `plan`: the requests that let it supersede the others; a person decides on each.
    """

    kb: str
    stays: GroupedEntry
    others: list[Duplicate]
    plan: list[Retry]

    @property
    def key(self) -> str:
        """The group's place in a list, best score first."""
        return f"{round((1 - self.others[0].score) * 10**PLACES):0{PLACES + 1}d}-{self.stays.id}"


class Comparison(NamedTuple):
    """Groups, best first. `compared`: how many entries, of `total`."""

    groups: list[DuplicateGroup]
    compared: int
    total: int


class _Text(NamedTuple):
    """The first chunk of an entry, as far as it is compared."""

    row: EntryRow
    chunk_id: int
    words: frozenset[str]
    numbers: frozenset[str]
    is_negative: bool


class _EntryPair(NamedTuple):
    one: int
    other: int
    score: float


def find(
    snapshot: Snapshot,
    filter: DocumentFilter,
    *,
    min_score: float,
    check: Callable[[], None],
) -> Comparison:
    """Returns the groups among the newest entries that pass the filter.

    `check` may raise between two steps.
    """
    ids = snapshot.queries.document_ids(filter).tolist()
    texts = _texts(snapshot, ids[-MOST_ENTRIES:], check)
    groups: list[DuplicateGroup] = []
    by_kb: dict[str, list[_Text]] = defaultdict(list)
    for text in texts:
        by_kb[text.row.kb].append(text)
    for kb, own_texts in by_kb.items():
        pairs = _pairs(snapshot.vectors, own_texts, min_score, check)
        groups += _grouped(kb, own_texts, pairs)
    return Comparison(sorted(groups, key=lambda group: group.key), len(texts), len(ids))


def _texts(snapshot: Snapshot, ids: Sequence[int], check: Callable[[], None]) -> list[_Text]:
    rows = snapshot.queries.entries_by_id(ids)
    texts: list[_Text] = []
    for chunk in snapshot.queries.first_index_rows(ids):
        if not len(texts) % 100:
            check()
        text = f"{chunk.title}\n{chunk.text}"
        lower = text.lower()
        texts.append(
            _Text(
                row=rows[chunk.document_id],
                chunk_id=chunk.chunk_id,
                words=frozenset(stems(words(text))),
                numbers=frozenset(_NUMBER.findall(lower)),
                is_negative=_NEGATION.search(lower) is not None,
            )
        )
    return texts


# ------------------------------------------------------------------------- pairs


def _pairs(
    vectors: VectorSnapshot | None,
    texts: Sequence[_Text],
    least: float,
    check: Callable[[], None],
) -> list[_EntryPair]:
    """Returns the pairs with at least that score. Entries without a vector meet by words."""
    pairs: dict[tuple[int, int], float] = {}
    embedded: set[int] = set()
    if vectors is not None:
        near = vectors.pairs(
            [text.chunk_id for text in texts], _LEAST_COSINE, most=_MOST_NEAR, check=check
        )
        embedded = near.embedded
        for one, other, cosine in near.pairs:
            pairs[one, other] = (_share(texts[one], texts[other]) + min(1.0, cosine)) / 2
    for one, other in _with_common_words(texts, embedded, check):
        pairs[one, other] = _share(texts[one], texts[other])
    return [_EntryPair(*pair, score) for pair, score in pairs.items() if score >= least]


def _share(one: _Text, other: _Text) -> float:
    """Returns the share of common words in all words of both (Dice, 1945)."""
    count = len(one.words) + len(other.words)
    return 2 * len(one.words & other.words) / max(1, count)


def _with_common_words(
    texts: Sequence[_Text], embedded: set[int], check: Callable[[], None]
) -> Iterator[tuple[int, int]]:
    """Yields the pairs that have one of their rarest words in common, and not both a vector."""
    if len(embedded) == len(texts):
        return
    counts = Counter(word for text in texts for word in text.words)
    places: dict[str, list[int]] = defaultdict(list)
    for index, text in enumerate(texts):
        check()
        candidates: dict[int, None] = {}
        for word in sorted(text.words, key=lambda word: (counts[word], word))[:_RAREST]:
            candidates.update(dict.fromkeys(places[word][-_MOST_MET:]))
            places[word].append(index)
        yield from (
            (other, index) for other in candidates if not (index in embedded and other in embedded)
        )


# ------------------------------------------------------------------------ groups


def _grouped(
    kb: str, texts: Sequence[_Text], pairs: Iterable[_EntryPair]
) -> Iterator[DuplicateGroup]:
    """Yields groups around the entries that stay; no entry is in two of them."""
    near: dict[int, dict[int, float]] = defaultdict(dict)
    for one, other, score in pairs:
        if isfinite(score):
            near[one][other] = near[other][one] = score
    free = set(near)
    for index in sorted(near, key=lambda index: _precedence(texts[index].row), reverse=True):
        if index not in free:
            continue
        others = [other for other in near[index] if other in free]
        if not others:
            continue
        free -= {index, *others}
        others.sort(key=lambda other: (-near[index][other], other))
        yield _group(kb, texts[index], [(texts[other], near[index][other]) for other in others])


def _precedence(row: EntryRow) -> tuple[bool, int, str, int]:
    """Returns a key that is greatest for the entry that should stay."""
    return row.verified_at is not None, trust_of(row.origin), row.created_at, row.id


def _group(kb: str, stays: _Text, others: Sequence[tuple[_Text, float]]) -> DuplicateGroup:
    duplicates = []
    for other, score in others:
        differences = _differences(stays, other)
        duplicates.append(
            Duplicate(
                **_of_row(other.row),
                score=round(min(1.0, score), PLACES),
                relation="opposite" if differences else "same",
                differs_in=differences,
            )
        )
    plan = [
        Retry(method="knowledge.supersede", params={"old_id": other.id, "new_id": stays.row.id})
        for other in duplicates
    ]
    return DuplicateGroup(
        kb=kb, stays=GroupedEntry(**_of_row(stays.row)), others=duplicates, plan=plan
    )


def _differences(one: _Text, other: _Text) -> list[Difference]:
    """Returns what may make two near texts opposites: each has a number that the other lacks, or
    one of them alone negates.
    """
    differences: list[Difference] = []
    if one.numbers - other.numbers and other.numbers - one.numbers:
        differences.append("number")
    if one.is_negative != other.is_negative:
        differences.append("negation")
    return differences
