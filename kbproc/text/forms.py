"""In which forms a query's words are looked up, and what each form weighs.

Owns: the weights, and which of them a word has.
Refuses to know: how rare a word is, and how forms are indexed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from kbproc.text.language import is_foreign, is_other_script
from kbproc.text.query import Query
from kbproc.text.stems import head, stems

# For other languages in Latin letters there is no stemmer: there the beginning of a word stands
# in for its stem.
ENGLISH = {"stem": 1.0, "word": 0.25}
STEMMED = {"stem": 1.0, "word": 0.25, "head": 0.25}
UNSTEMMED = {"stem": 0.25, "word": 0.25, "head": 1.0}
_FIELDS = ("stem", "word", "head", "name")
# A name as a whole, beside its parts in any order.
NAME = 1.0


class Term(NamedTuple):
    """`field`: the form. `most`: what a text that holds it could reach, `boost` or more."""

    field: str
    word: str
    boost: float
    most: float


def terms(
    query: Query, *, any_foreign: bool, is_in_foreign: Callable[[str, str], bool]
) -> list[Term]:
    """What a query looks up; a word said twice counts twice.

    `any_foreign`: whether any text has beginnings of words. `is_in_foreign`: of a query too short
    to tell, whether such texts hold the word of this stem and beginning.
    """
    told = is_foreign(query.said) if any_foreign else False
    found: dict[tuple[str, str], tuple[float, float]] = {}

    def add(word: str, stem: str, boost: float, most: float) -> None:
        forms = {"stem": stem, "word": word, "head": head(word) if any_foreign else ""}
        if any_foreign and is_other_script(word):
            weights: Mapping[str, float] = STEMMED
        elif told or (told is None and is_in_foreign(stem, forms["head"])):
            weights = UNSTEMMED
        else:
            weights = ENGLISH
        for field, weight in weights.items():
            if form := forms[field]:
                had = found.get((field, form), (0.0, 0.0))
                found[field, form] = (had[0] + weight * boost, had[1] + weight * most)

    asked = query.looked_up()
    for (word, boost, most), stem in zip(asked, stems([word for word, *_ in asked]), strict=True):
        add(word, stem, boost, most)
    for name in query.names:
        found["name", name] = (NAME, NAME)
    # 32-bit sums depend on their order: a field after the other, as ever.
    in_order = sorted(found.items(), key=lambda item: _FIELDS.index(item[0][0]))
    return [Term(field, form, *weights) for (field, form), weights in in_order]
