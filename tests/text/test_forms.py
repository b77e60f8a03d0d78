"""Word forms: stems by script, prefixes, and the check whether a text is English."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kbproc.base.text.analysis import analyse, words
from kbproc.base.text.language import is_foreign
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
