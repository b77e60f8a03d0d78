"""A reply is the sender's own words, without the quoted mail and the signature around them."""

from __future__ import annotations

import pytest

from kbproc.engine.sources.parse import replies
from kbproc.engine.sources.parse.replies import OwnWords, answers


def own_words(text: str) -> OwnWords:
    return replies.own_words(text, is_answer=True)


def own_page(page: str) -> OwnWords:
    return replies.own_page(page, is_answer=True)


def counts(quotes: int, signatures: int) -> dict[str, int]:
    return {"quoted_passages": quotes, "signatures": signatures}


@pytest.mark.parametrize(
    ("line", "is_dropped"),
    [
        ("On Mon, 5 Mar 2024, Bo wrote:", True),
        ("Am 05.03.2024 schrieb Bo Li:", True),
        ("Le 5 mars 2024, Bo a écrit :", True),
        ("Bo <bo@b.org> wrote:", True),
        ("On Mon, 5 Mar 2024 at 10:00, Bo Li\n<bo@b.org>\nwrote:", True),
        ("I wrote a letter.", False),
        ("He wrote: " + "x" * 1001, False),
        ("On " + "x" * 990 + " wrote:", True),
        ("On " + "x" * 992 + " wrote:", False),
    ],
)
def test_the_line_above_a_quote_goes_with_it(line: str, is_dropped: bool) -> None:
    own = own_words(f"Noon.\n\n{line}\n\n> When?\n>\n> Bo\n")
    assert own.text.rstrip() == ("Noon." if is_dropped else f"Noon.\n\n{line}")
    assert own.unread == counts(1, 0)


def test_answers_between_quotes_stay_in_order() -> None:
    own = own_words("> When?\nNoon.\n   > Where?\n\n> Still?\r\nHere.\n")
    assert own == OwnWords("Noon.\nHere.\n", counts(2, 0))


def test_a_signature_ends_the_mail_or_the_words_above_a_quote() -> None:
    assert own_words("Noon.\n-- \nAnn\n0123") == OwnWords("Noon.", counts(0, 1))
    assert own_words("Noon.\n-- \nAnn\n\n> When?\nMore") == OwnWords("Noon.\nMore", counts(1, 1))
    assert own_words("Noon.\n--\nAnn") == OwnWords("Noon.\n--\nAnn", counts(0, 0))


def test_all_below_the_mark_of_the_original_message_goes() -> None:
    text = "Noon.\n-----Original Message-----\nFrom: Bo\nWhen?"
    assert own_words(text) == OwnWords("Noon.", counts(1, 0))
    german = text.replace("Original Message", "Ursprüngliche Nachricht")
    assert own_words(german) == OwnWords("Noon.", counts(1, 0))


def test_a_forwarded_mail_stays_whole() -> None:
    text = "See below.\n---------- Forwarded message ---------\nFrom: Bo\n> quoted there"
    assert own_words(text) == OwnWords(text, counts(0, 0))


@pytest.mark.parametrize(
    "text", ["> all\n> quoted", "", "\n", "-- \nAnn", "--Original Message--\nx"]
)
def test_a_mail_without_words_of_its_own_stays_as_it_is(text: str) -> None:
    own = own_words(text)
    assert own.text == text
    assert sum(own.unread.values()) == 0


@pytest.mark.parametrize(
    ("part", "unread"),
    [
        ("<blockquote type=cite>When?</blockquote>", counts(1, 0)),
        ("<div class=gmail_quote>When?</div>", counts(1, 0)),
        ("<div id=divRplyFwdMsg>From: Bo</div><p>When?</p><p>Bo</p>", counts(1, 0)),
        ("<div class=gmail_signature>When? Ann</div>", counts(0, 1)),
    ],
)
def test_parts_of_a_page_are_known_by_the_names_of_mail_programs(
    part: str, unread: dict[str, int]
) -> None:
    own = own_page(f"<p>Noon.</p>{part}")
    assert own.unread == unread
    assert "<p>Noon.</p>" in own.text
    assert "When?" not in own.text


@pytest.mark.parametrize(
    "page",
    [
        "<blockquote>A poem</blockquote>",
        "<div class=gmail_quote>When?</div>",
        "<p>x</p><div class=gmail_quote>---------- Forwarded message ---------<p>When?</p></div>",
        "<p>x</p><div class=gmail_quote> </div>",
        "",
    ],
)
def test_a_page_without_quotes_or_own_words_stays_as_it_is(page: str) -> None:
    assert own_page(page) == OwnWords(page, {})


@pytest.mark.parametrize(
    ("subject", "refers", "is_answer"),
    [
        ("Re: Noon", False, True),
        ("AW: FW: Noon", False, True),
        ("RE[2]: Noon", False, True),
        ("答复：Noon", False, True),
        ("Noon", True, True),
        ("Noon", False, False),
        ("FW: RE: Noon", True, False),
        ("WG: Noon", True, False),
        ("转发: Noon", True, False),
        ("Recipe: Noon", False, False),
    ],
)
def test_an_answer_is_known_by_its_header(subject: str, refers: bool, is_answer: bool) -> None:
    fields = {"subject": subject, **({"in-reply-to": "<1@a>"} if refers else {})}
    assert answers(fields) is is_answer


@pytest.mark.parametrize(
    "text",
    [
        "FYI\n\n-----Original Message-----\nFrom: Bo\nSent: Monday\n\nWhen?\n> Earlier",
        "FYI\n\n-----Ursprüngliche Nachricht-----\nVon: Bo\nGesendet: Montag\n\nWann?",
        "FYI\n\n----- Opprinnelig melding -----\nFra: Bo\nSendt: mandag\n\nNår?",
        "A poem:\n\n> roses\n> violets",
    ],
)
def test_what_is_no_answer_keeps_the_mail_or_text_that_it_passes_on(text: str) -> None:
    assert replies.own_words(text, is_answer=False) == OwnWords(text, counts(0, 0))


def test_a_quote_below_the_name_of_its_writer_makes_an_answer() -> None:
    own = replies.own_words("Noon.\n\nBo wrote:\n> When?", is_answer=False)
    assert own == OwnWords("Noon.\n", counts(1, 0))
    page = "<p>Noon.</p><div class=gmail_quote>On Monday Bo wrote:<p>When?</div>"
    assert "When?" not in replies.own_page(page, is_answer=False).text
    outlook = "<p>FYI</p><div id=divRplyFwdMsg>From: Bo</div><p>When?</p>"
    assert replies.own_page(outlook, is_answer=False) == OwnWords(outlook, {})


def test_the_mark_of_an_older_mail_is_known_in_any_language_by_the_fields_below_it() -> None:
    text = "Klokken tolv.\n\n----- Opprinnelig melding -----\nFra: Bo\nSendt: mandag\n\nNår?"
    assert own_words(text) == OwnWords("Klokken tolv.\n", counts(1, 0))
    table = "Noon.\n\n---- Ropes and hooks ----\nsteel, hemp\nMore."
    assert own_words(table) == OwnWords(table, counts(0, 0))
