"""Chooses the forms in which a query's words are looked up, and the weight of each form."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import fsum

from msgspec import Struct
from msgspec.structs import replace

from kbproc.base.text.language import is_foreign, is_other_script
from kbproc.base.text.query import Query
from kbproc.base.text.stems import head, stems

# Other languages in Latin letters have no stemmer here, so the beginning of a word replaces its
# stem.
ENGLISH = {"stem": 1.0, "word": 0.25}
STEMMED = {"stem": 1.0, "word": 0.25, "head": 0.25}
UNSTEMMED = {"stem": 0.25, "word": 0.25, "head": 1.0}
_ORDER = {"stem": 0, "word": 1, "head": 2, "name": 3, "file": 4, "folder": 5}
# The weight of a name as a whole, beside its parts in any order: of a code or a number, and of a
# compound, because many compounds say no more than their parts.
NAME, COMPOUND = 1.0, 0.4
# A text that has a word in none of its forms gets a share of the word's weight: for the word in
# parts ("wi-fi" for "wifi"), and for the word in the name of its file or of a folder. The first
# share is that of a text of middling length that says the word once. The shares add up to less than
# 1, so that none of them lets a text reach more.
_ELSEWHERE = {"name": 0.45, "file": 0.35, "folder": 0.15}
Form = tuple[str, str]  # field, word


class Term(Struct, frozen=True):
    """One word in one form, for the full-text index.

    `field`: the form. `most`: the score that a text that holds it can reach beside all other terms.
    `others`: forms of the same word, which count for its rarity. `instead`: the term counts only in
    texts that hold none of `others`.
    """

    field: str
    word: str
    boost: float
    most: float
    others: tuple[Form, ...] = ()
    instead: bool = False

    @property
    def form(self) -> Form:
        return self.field, self.word

    @property
    def is_flat(self) -> bool:
        """Returns True if the term counts once in a text, however often it occurs."""
        return self.instead or self.field == "name"


def terms(
    query: Query,
    *,
    any_foreign: bool,
    is_in_foreign: Callable[[str, str], bool],
    frequency: Callable[[str, str], int],
) -> list[Term]:
    """Returns the terms that a query looks up; a repeated word counts twice.

    `any_foreign`: whether any text has beginnings of words. `is_in_foreign`: for a query too short
    to tell its language, whether such texts hold the word of this stem and beginning. `frequency`:
    how many texts hold a form.
    """
    foreign = is_foreign(query.all_words) if any_foreign else False

    def weights_of(word: str, stem: str, beginning: str) -> Mapping[str, float]:
        if is_other_script(word):
            return STEMMED
        if foreign or (foreign is None and is_in_foreign(stem, beginning)):
            return UNSTEMMED
        return ENGLISH

    lookups = query.looked_up()
    word_stems = stems([word for word, *_ in lookups])
    by_form = {term.form: term for term in _names(query.names, word_stems, frequency)}
    names = frozenset(by_form)
    weights: Mapping[str, float] = ENGLISH
    others: tuple[Form, ...]
    for (word, boost, most), stem in zip(lookups, word_stems, strict=True):
        if any_foreign:
            beginning = head(word)
            weights = weights_of(word, stem, beginning)
            forms = {"stem": stem, "word": word, "head": beginning}
            others = tuple([(field, forms[field]) for field in weights if forms[field]])
        else:
            others = (("stem", stem), ("word", word))
        elsewhere = [f for f in _ELSEWHERE if frequency(f, stem) and (f, stem) not in names]
        whole = fsum(weights[field] for field, _ in others) if elsewhere else 0.0
        if elsewhere and not any(frequency(*form) for form in others):
            others, reach = (), whole * most  # No text holds it, so its rarity is unknown.
        else:
            reach = 0.0
        for field, form in others:
            weight = weights[field]
            _add(by_form, Term(field, form, weight * boost, weight * most))
        for field in elsewhere:
            weight = _ELSEWHERE[field] * whole * boost
            _add(by_form, Term(field, stem, weight, reach, others, instead=True))
            others, reach = others or ((field, stem),), 0.0
    # 32-bit sums depend on their order, so fields are added in a fixed one.
    return sorted(by_form.values(), key=lambda term: _ORDER[term.field])


def _add(by_form: dict[Form, Term], term: Term) -> None:
    """Adds a term, or its weight to the term that is there already."""
    form = term.field, term.word
    if (same := by_form.get(form)) is not None:
        term = replace(same, boost=same.boost + term.boost, most=same.most + term.most)
    by_form[form] = term


def _names(
    names: Sequence[str], beside: Sequence[str], frequency: Callable[[str, str], int]
) -> Iterator[Term]:
    """Yields names in parts and, for texts that lack those, as one plain word.

    `beside`: stems that are looked up beside them.
    """
    for stem in dict.fromkeys(stems(names)):
        in_parts, plain = ("name", stem), ("stem", stem)
        weight = COMPOUND if stem.isalpha() else NAME
        is_plain = stem not in beside and frequency(*plain) > 0
        if frequency(*in_parts) or not is_plain:
            yield Term(*in_parts, weight, weight, (plain,))
            if is_plain:
                yield Term(*plain, weight, 0.0, (in_parts,), instead=True)
        else:
            yield Term(*plain, weight, weight, (in_parts,), instead=True)
