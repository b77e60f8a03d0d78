"""Word forms: stems by script, prefixes, and the check whether a text is English."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kbproc.base.text.analysis import analyse, words
from kbproc.base.text.forms import COMPOUND, ENGLISH, NAME, UNSTEMMED, terms
from kbproc.base.text.language import is_foreign
from kbproc.base.text.query import parse_query
from kbproc.base.text.stems import head, heads, stemmed_by_script, stems


@pytest.mark.parametrize(
    "forms",
    [
        "столица столицы столице столицей",
        "Ελλάδα Ελλάδας",
        "πόλη πόλεις",
        "كتاب الكتاب",
        "مدرسة المدرسة",
        "किसान किसानों",
        "लड़का लड़के",
        "running runs run",
    ],
)
def test_forms_of_a_word_have_one_stem(forms: str) -> None:
    assert len(set(stems(words(forms)))) == 1


def test_words_between_scripts_keep_their_places() -> None:
    mixed = "git столица 水道 installing города und كتاب"
    assert len(stems(words(mixed))) == len(words(mixed))
    assert stems(words(mixed))[0] == "git"
    assert stemmed_by_script(analyse(mixed)).split()[1] == stems(["столица"])[0]
    assert stemmed_by_script("plain ascii words") == "plain ascii words"


@given(
    st.lists(st.sampled_from(["столица", "runs水道", "水", "كتاب", "लड़के", "πόλεις", "a", "한국"]))
)
def test_there_is_a_stem_for_every_word(folded: list[str]) -> None:
    folded = [word for text in folded for word in words(text)]
    assert len(stems(folded)) == len(folded)
    assert stemmed_by_script(" ".join(folded)).split() == [
        stem if word > "\u024f" else word for word, stem in zip(folded, stems(folded), strict=True)
    ]


@given(st.text(st.characters(categories=["L", "N", "M"]), max_size=30))
@example("όταν είναι")
def test_there_is_a_stem_for_every_word_of_any_script(text: str) -> None:
    result = stems(words(text))
    assert len(result) == len(words(text)) and all(result)
    assert len(stemmed_by_script(analyse(text)).split()) == len(words(text))


@pytest.mark.parametrize(
    "pair", ["knives knife", "geese goose", "mice mouse", "criteria criterion"]
)
def test_an_irregular_plural_has_the_stem_of_its_singular(pair: str) -> None:
    assert len(set(stems(pair.split()))) == 1


def test_beginnings() -> None:
    assert heads("die krankenversicherung der stadt") == "die krank der stadt"
    assert head("krankenversicherungen") == head("krankenkasse") == "krank"
    assert head("столицами") == head("столица")
    assert head("水道") == head("水") == ""


@pytest.mark.parametrize(
    ("text", "foreign"),
    [
        ("How do I install the latest version of git?", False),
        ("The capital of France is Paris, as de Gaulle said.", False),
        ("install git", None),
        ("", None),
        ("def parse(text): return text.strip()", None),
        ("Wo liegt die Hauptstadt und wie heißt sie?", True),
        ("¿Cuál es la capital de Francia?", True),
        ("Quelle est la capitale de la France ?", True),
        ("Qual é a capital da França?", True),
        ("Dove si trova la biblioteca della città?", True),
        ("Waar staat het huis van de familie?", True),
        ("Hvor ligger biblioteket og hvad koster det?", True),
        ("Gdzie jest biblioteka i kto ją prowadzi?", True),
        ("Kütüphane nerede ve ne zaman açık?", True),
        ("Missä kirjasto on ja milloin se on auki?", True),
        ("Thư viện ở đâu và mở cửa khi nào?", True),
        ("Di mana perpustakaan itu dan kapan buka?", True),
        ("столица России", True),
        ("عاصمة فرنسا", True),
        ("中国首都", None),
        ("在 GitHub 上", None),
    ],
)
def test_is_it_english(text: str, foreign: bool | None) -> None:
    assert is_foreign(words(text)) is foreign


# ------------------------------------------------------------------ terms of a query

WORD = st.sampled_from(["heron", "herons", "lake", "wi-fi", "cross-encoder", "v1.2.3", "столица"])
FIELDS = ["stem", "word", "head", "name", "file", "folder"]


@given(
    query=st.lists(WORD, min_size=1, max_size=5).map(" ".join),
    any_foreign=st.booleans(),
    in_foreign=st.booleans(),
    fields=st.sets(st.sampled_from(FIELDS)),
)
def test_terms_of_a_query_are_bounded_and_ordered(
    query: str, any_foreign: bool, in_foreign: bool, fields: set[str]
) -> None:
    """No form is looked up twice, 32-bit sums have one order, and no text can reach more than all
    words in all forms and the names beside them.
    """
    parsed = parse_query(query)
    own_terms = terms(
        parsed,
        any_foreign=any_foreign,
        is_in_foreign=lambda stem, beginning: in_foreign,
        frequency=lambda field, word: int(field in fields),
    )
    forms = [(term.field, term.word) for term in own_terms]
    assert len(forms) == len(set(forms))
    assert [FIELDS.index(term.field) for term in own_terms] == sorted(
        FIELDS.index(term.field) for term in own_terms
    )
    assert any_foreign or "head" not in {term.field for term in own_terms}
    assert all(term.boost > 0 and term.word for term in own_terms)
    weight = sum((UNSTEMMED if any_foreign else ENGLISH).values())
    lookups = sum(most for _, _, most in parsed.looked_up())
    assert sum(term.most for term in own_terms) <= weight * lookups + len(parsed.names) + 1e-9
    for term in own_terms:
        if term.instead:
            assert (term.field, term.word) not in term.others
            assert term.boost < max(weight, 1) * lookups


def test_a_word_that_no_text_holds_counts_by_the_name_of_a_file() -> None:
    """The first such field gets the weight, because the rarity of the word is unknown."""

    def looked_up(*fields: str) -> dict[str, tuple[float, float, bool]]:
        own_terms = terms(
            parse_query("heron"),
            any_foreign=False,
            is_in_foreign=lambda stem, beginning: False,
            frequency=lambda field, word: int(field in fields),
        )
        return {term.field: (term.boost, term.most, term.instead) for term in own_terms}

    assert looked_up() == {"stem": (1.0, 1.0, False), "word": (0.25, 0.25, False)}
    assert looked_up("stem", "file")["file"] == (0.35 * 1.25, 0.0, True)
    assert looked_up("file") == {"file": (0.35 * 1.25, 1.25, True)}
    both = looked_up("file", "folder")
    assert (both["file"][1], both["folder"][1]) == (1.25, 0.0)


def test_a_repeated_word_counts_twice() -> None:
    def boost(query: str) -> list[float]:
        own_terms = terms(
            parse_query(query),
            any_foreign=False,
            is_in_foreign=lambda stem, beginning: False,
            frequency=lambda field, word: 1,
        )
        return [term.boost for term in own_terms if term.field in {"stem", "word"}]

    assert boost("heron heron") == [2 * one for one in boost("heron")]


@pytest.mark.parametrize("name, weight", [("wi-fi", COMPOUND), ("v1.2.3", NAME)])
def test_a_compound_weighs_less_than_a_code(name: str, weight: float) -> None:
    own_terms = terms(
        parse_query(name),
        any_foreign=False,
        is_in_foreign=lambda stem, beginning: False,
        frequency=lambda field, word: int(field == "name"),
    )
    assert [term.boost for term in own_terms if term.field == "name" and not term.instead] == [
        weight
    ]
