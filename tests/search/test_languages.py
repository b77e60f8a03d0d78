"""Small collections in seven languages; the queries use other word forms than the texts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kbproc.engine.models.fluency import Fluency
from kbproc.engine.models.hashing import HashEmbedder
from tests.kit.talk import Session

TEXTS = {
    "ru": [
        "Москва является столицей России и крупнейшим городом страны.",
        "Старые книги хранятся в библиотеках университета и редко выдаются читателям.",
        "Врач советует пить больше воды и гулять каждый день на свежем воздухе.",
    ],
    "ar": [
        "تقع المدرسة الجديدة بالقرب من السوق في وسط المدينة.",
        "يقرأ الطالب الكتاب في المكتبة كل صباح.",
        "يشرب الناس الماء كثيرا في فصل الصيف.",
    ],
    "hi": [
        "पुराना पुस्तकालय शहर के बीच में है और सबके लिए खुला रहता है।",
        "किसान अपने खेत में गेहूँ उगाता है और बाज़ार में बेचता है।",
        "लड़का रोज़ नदी के किनारे दौड़ता है।",
    ],
    "th": [
        "กรุงเทพมหานครเป็นเมืองหลวงของประเทศไทย",
        "นักเรียนอ่านหนังสือในห้องสมุดทุกวัน",
        "ชาวนาปลูกข้าวในฤดูฝน",
    ],
    "de": [
        "Die Krankenversicherung übernimmt die Kosten der Behandlung in der Klinik.",
        "Der Gärtner gießt am Abend die Blumen und schneidet die Hecke.",
        "Das Fahrrad steht im Keller und wird nur im Sommer gefahren.",
    ],
    "tr": [
        "Kütüphane bu şehirde çok eski bir bina ve herkes için açık.",
        "Öğretmen çocuklara yeni bir hikâye anlattı ve sonra bahçeye çıktı.",
        "Balıkçı sabah erkenden denize açıldı ama bir balık bile tutamadı.",
    ],
    "zh": [
        "北京是中国的首都，也是全国的政治中心。",
        "学生每天早上在图书馆里读书。",
        "农民在春天种植水稻。",
    ],
}
# A question, the text that answers it, and a word of it that stands there in another form, with
# the form in which they meet.
ASKED = [
    ("ru", "какой город столица", 0, "столица", "stem"),
    ("ru", "библиотека и её читатели", 1, "библиотека", "stem"),
    ("ar", "أين مدرسة جديدة", 0, "مدرسة", "stem"),
    ("ar", "كتاب", 1, "كتاب", "stem"),
    ("hi", "खेतों में किसानों का काम", 1, "खेतों", "stem"),
    ("th", "เมืองหลวง", 0, None, "stem"),
    ("de", "Welche Krankenversicherungen zahlen das?", 0, "krankenversicherungen", "head"),
    ("de", "Wann haben die Gärtnerinnen Zeit?", 1, "gartnerinnen", "head"),
    ("tr", "kütüphaneler nerede", 0, "kutuphaneler", "head"),
    ("tr", "öğretmenlerin hikâyesi nasıl", 1, "ogretmenlerin", "head"),
    ("zh", "中国首都", 0, None, "stem"),
]


@pytest.fixture(scope="module", params=TEXTS)
def filled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp(request.param)
    session = Session(folder / "store", cwd=folder)
    for text in TEXTS[request.param]:
        session.data("doc.create", title="-", text=text)
    session.embedded()
    yield request.param, session
    session.close()


@pytest.fixture(scope="module")
def all_languages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    folder = tmp_path_factory.mktemp("all")
    session = Session(folder / "store", cwd=folder)
    for texts in TEXTS.values():
        for text in texts:
            session.data("doc.create", title="-", text=text)
    session.data(
        "doc.create", title="-", text="The library of the school has been open since 1950."
    )
    session.embedded()
    yield session
    session.close()


def hits(session: Session, query: str, **params: Any) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = session.data("search", query=query, **params)["results"]
    return results


def test_another_form_of_a_word_finds_it(filled: tuple[str, Session]) -> None:
    language, session = filled
    for _, query, at, word, form in (case for case in ASKED if case[0] == language):
        best = hits(session, query, mode="fts", explain=True)[0]
        assert best["text"] == TEXTS[language][at], query
        terms = best["explain"]["fts"]["terms"]
        assert form in {term["form"] for term in terms}
        if word is not None:
            assert word not in {term["word"] for term in terms if term["form"] == "word"}


def test_among_all_languages_it_is_found_too(all_languages: Session) -> None:
    for language, query, at, *_ in ASKED:
        assert hits(all_languages, query, mode="fts")[0]["text"] == TEXTS[language][at], query


def test_what_the_model_does_not_know_leaves_the_order_of_words(
    all_languages: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the model does not know the language, noise in the vectors does not change the order."""
    monkeypatch.setattr(HashEmbedder, "fluency", lambda self, text, is_foreign: Fluency(factor=0.1))
    for language, query, at, *_ in ASKED:
        assert hits(all_languages, query)[0]["text"] == TEXTS[language][at], query


def test_an_english_question_asks_for_no_beginnings(all_languages: Session) -> None:
    (best, *_) = hits(all_languages, "when was the library opened", mode="fts", explain=True)
    assert best["text"].startswith("The library")
    assert {term["form"] for term in best["explain"]["fts"]["terms"]} == {"stem", "word"}
    weights = {hit["chunk_id"]: hit["score"] for hit in hits(all_languages, "library", mode="fts")}
    assert max(weights.values()) > 0.3


def test_no_score_exceeds_what_a_text_can_reach(filled: tuple[str, Session]) -> None:
    language, session = filled
    for text in TEXTS[language]:
        best = hits(session, text, mode="fts", explain=True)[0]
        assert best["text"] == text
        assert best["explain"]["fts"]["bm25"] <= best["explain"]["fts"]["bound"]
