"""Text analysis, query syntax and snippets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import astuple

from kbproc.base.text.analysis import STOP_WORDS, analyse, translated, words
from kbproc.base.text.names import names, wholes
from kbproc.base.text.query import parse_query
from kbproc.base.text.snippet import ELLIPSIS, Centre, Snippet, extract, snippet
from kbproc.base.text.stems import stem_of, stems

NAUGHTY = Path(os.environ.get("KBPROC_TEST_DATA") or "/nonexistent") / "dirty" / "naughty-strings"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Install the LATEST git!", "install the latest git"),
        ("Über naïve Straße, Łódź", "uber naive strasse lodz"),
        ("cafe\u0301 = café", "cafe cafe"),
        ("ＧＩＴ　２．０", "git 2 0"),
        ("Ελλάδας ΕΛΛΆΔΑΣ", "ελλαδασ ελλαδασ"),
        ("Йод ёлка", "йод елка"),
        ("كِتَاب", "كتاب"),
        ("हिन्दी में", "हिन्दी में"),
        ("٣ apples", "3 apples"),
        ("soft\u00adhyphen zero\u200bwidth", "softhyphen zerowidth"),
        ("party 🎉time", "party 🎉 time"),
        ("水", "水"),
        ("用水道", "用 用水 水 水道 道"),
        ("スーパー・マン", "す すー ー ーぱ ぱ ぱー ー ま まん ん"),
        ("가나", "가 가나 나"),
        ("ｶﾞ", "が"),
        ("使用GitHub。", "使 使用 用 github git hub"),
        ("น้ำ", "น้ํ น้ํา า"),
        ("parseQuery", "parsequery parse query"),
        ("parse_query", "parsequery parse query"),
        ("HTTPServer2Go", "httpserver2go http server2 go"),
        ("get_fooBar MAX_SIZE", "getfoobar get foo bar maxsize max size"),
        ("__init__ _x snake_", "init x snake"),
        ("LLMs and URLs", "llms and urls"),
        ("doc.ingest a/b.py me@x.org", "doc ingest a b py me x org"),
        ("C++ c# F# C++17 i++ #1", "cpp csharp fsharp cpp 17 i 1"),
        ("", ""),
        ("…—!?\x00\ud800", ""),
    ],
)
def test_analysis(text: str, expected: str) -> None:
    assert words(text) == expected.split()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("doc.ingest a/b.py me@x.org", ["docingest", "bpy", "xorg"]),
        ("v2.3.1 and 2.3.1, then v2.3", ["v231", "v231", "v23"]),
        ("CVE-2024-3094, gpt-4 (utf-8)", ["cve20243094", "gpt4", "utf8"]),
        ("3.14 of 1990-2000, state-of-the-art, e.g. in the U.S. End", []),
        ("os.path.parseQuery, get_it.now", ["ospathparsequery", "getitnow"]),
        ("C:\\a\\b.txt https://x.org/a-1", ["btxt", "xorg", "a1"]),
        (
            "1,284,500.75 or 12'750 or 12’750 or 7.350.000,50",
            "v7350000 1284500 12750 12750 7350000",
        ),
        ("12\u2009750 then 1\u202f284\u202f500 and 1\u00a0000", "12750 1284500 1000"),
        ("12,34,567 and １，２８４，５００ and ٧٬٣٥٠", "1234567 1284500 7350"),
        ("1,2,3 of 2024-11-26, 555-1234, 12,5; 1,284,5001", []),
        ("100 200 300 400 500 600 700 800 900", []),
        ("wi-fi re-opening non\u2011stop co‐operate", "wifi reopening nonstop cooperate"),
        ("Ту-154 und E-Mail-Adresse", "emailadresse email mailadresse ту154"),
        ("commis-\nsion Donau-\r\n  dampf commis\u00ad\nsion", "commission donaudampf commission"),
        ("Anglo-\nSaxon", []),
        ("п'ять п’ять Hawai'i rock'n'roll col·legi", "пять пять hawaii rocknroll collegi"),
        ("O'Brien's O’Neill D'Angelo צה\"ל", "obrien oneill dangelo צהל"),
        ("don't it's the company's l'eau d'accord aujourd'hui qu’il", []),
        ("", []),
    ],
)
def test_names_as_a_whole(text: str, expected: list[str] | str) -> None:
    expected = expected.split() if isinstance(expected, str) else expected
    assert sorted(names(text)) == sorted(expected)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("کتاب", "كتاب"),
        ("یک", "يك"),
        ("على", "علي"),
        ("ہم", "هم"),
        ("۴۵", "٤٥"),
        ("كـتاب", "كتاب"),
        ("пʼять", "пять"),
        ("Hawaiʻi", "Hawaii"),
        ("Qurʾān", "Quran"),
        ("ラーメン ｶﾚｰ", "らーめん かれー"),
        ("Сhrome сcылка", "Chrome ссылка"),
        ("IT\u2011отдел GPTшный", "IT\u2011отдел GPTшный"),
    ],
)
def test_one_letter_of_two_keyboards_is_one(one: str, other: str) -> None:
    assert words(one) == words(other)


@pytest.mark.parametrize(
    "piece",
    ["a", "a-", "1,", "1,234", "a'", "12 ", "a\u00ad", "a.1", "a-\n", "é\u0301", "a\u00ad\n"],
)
def test_names_take_time_in_proportion_to_the_text(piece: str) -> None:
    """A pattern that backtracks would take quadratic time on these texts."""
    assert isinstance(names(piece * 100_000), list)


@given(st.text(st.sampled_from("aA_é1'’-\u2011\u00ad,. \n\u00a0א\"水\u0301")))
@example("see __.__ and wi-fi")
def test_names_are_one_folded_word_and_stand_in_the_text(text: str) -> None:
    for start, end, word in map(astuple, wholes(text)):
        assert word.strip() == word and word and 0 <= start < end <= len(text)
        assert [stem_of(word)] == stems([word])


@given(st.text(max_size=80))
def test_a_text_is_translated_as_by_its_table(text: str) -> None:
    table = {code: "x" if code >= 128 else chr(code).upper() for code in map(ord, text)}
    table |= {code: chr(code).upper() for code in range(128)}
    of_ascii = bytes(ord(table[code]) for code in range(128)) + bytes(range(128, 256))
    assert translated(text, table, of_ascii) == text.translate(table)


@given(st.text())
def test_words_are_folded_already_and_parted_by_spaces_only(text: str) -> None:
    for word in words(text):
        assert not any(c.isspace() or unicodedata.category(c) in ("Cs", "Cc") for c in word)
        assert not any("A" <= c <= "Z" for c in word)
    assert [word for word in analyse(text).split(" ") if word] == words(text)


@given(st.text(st.characters(codec="ascii"), max_size=60))
def test_the_fast_path_for_ascii_gives_what_the_slow_one_gives(text: str) -> None:
    assert words(f"{text} é") == [*words(text), "e"]


@given(st.text())
def test_a_text_of_few_other_letters_has_the_words_that_one_of_many_has(text: str) -> None:
    letters = "ა ბ გ დ ე ვ ზ თ ი კ ლ მ ნ"
    assert words(f"{text} {letters}") == [*words(text), *letters.split()]


@given(st.text("aBV1-.,'()s%", max_size=12), st.text("aBV1-.,'()s%", max_size=12))
@example("IL-6", "v-1")
@example("(0.016)", "wi-fi,")
def test_a_break_of_a_word_changes_no_other_name(one: str, other: str) -> None:
    text = f"{one} {other}"
    assert {*names(f"{text} x-\ny")} == {*names(text), "xy"}


PART = st.text("abcdez09", min_size=2, max_size=5).filter(lambda part: part[0].isalpha())
PLAIN = st.lists(st.sampled_from(["a word", "Words.", "(é)", "The end", "NASA", "I", "-", "\n"]))


@given(st.lists(PART, min_size=2, max_size=4), PLAIN, PLAIN, st.sampled_from(["_", "hump"]))
def test_an_identifier_is_found_wherever_it_stands(
    parts: list[str], before: list[str], after: list[str], joint: str
) -> None:
    name = "_".join(parts) if joint == "_" else parts[0] + "".join(map(str.capitalize, parts[1:]))
    text = " ".join([*before, f"({name})", *after])
    expected = [*words(" ".join(before)), "".join(parts), *parts, *words(" ".join(after))]
    assert words(text) == expected


@given(st.lists(st.sampled_from(["run", "running", "水道", "parseQuery", "été", "C++"])))
def test_the_words_of_a_text_are_those_of_its_parts(parts: list[str]) -> None:
    assert words(" ".join(parts)) == [word for part in parts for word in words(part)]


def test_stems_answer_word_for_word() -> None:
    assert stems(["running", "skies", "水道", "installation", "x" * 999]) == [
        "run",
        "sky",
        "水道",
        "instal",
        "x" * 999,
    ]
    assert stems([]) == []


@pytest.mark.parametrize(
    ("text", "terms", "phrases", "excluded"),
    [
        ("install git", ["install", "git"], [], []),
        ("How do I install git?", ["install", "git"], [], []),
        ("the who", ["the", "who"], [], []),
        ("don't it's we'll", ["don", "t", "it", "s", "we", "ll"], [], []),
        ("Boeing's wings don't bend", ["boeing", "wings", "bend"], [], []),
        ("git git", ["git", "git"], [], []),
        ('"to be" fox', ["fox"], [("to", "be")], []),
        ('"A Phrase" word', ["phrase", "word"], [("a", "phrase")], []),
        ("“smart quotes”", ["smart", "quotes"], [("smart", "quotes")], []),
        ("git -svn", ["git"], [], [("svn",)]),
        ('git -"old way"', ["git"], [], [("old", "way")]),
        ("git -state-of-the-art", ["git"], [], [("state", "of", "the", "art")]),
        ("git commit --amend", ["git", "commit", "amend"], [], []),
        ("well-known", ["well", "known"], [], []),
        ('"unbalanced -xyz', ["unbalanced"], [], [("xyz",)]),
        ("tar -x -rf", ["tar", "x", "rf"], [], []),
        ("tar -xzf archive.tar.gz", ["tar", "xzf", "archive", "tar", "gz"], [], []),
        ("find . -name it", ["find", "name"], [], []),
        ("node.js -express", ["node", "js"], [], [("express",)]),
        ("python -python2", ["python", "python2"], [], []),
        ('tar -"x"', ["tar"], [], [("x",)]),
        ("vaccine freezer -80°C", ["vaccine", "freezer", "80", "c"], [], []),
        ("nitrogen -195.8", ["nitrogen", "195", "8"], [], []),
        ("loss -€50 -$3 -.5 -US$7", ["loss", "50", "3", "5", "us", "7"], [], []),
        ("rate –0.5% −2%", ["rate", "0", "5", "2"], [], []),
        ("red - green -", ["red", "green"], [], []),
        ("the plan -as agreed- works", ["plan", "agreed", "works"], [], []),
        ("-foo- bar -baz", ["foo", "bar"], [], [("baz",)]),
        ("top -well-known", ["top"], [], [("well", "known")]),
        ("a AND (b OR c) NOT d", ["b", "c", "d"], [], []),
        ('"" -"" - + git', ["git"], [], []),
        ('say"this now"', ["say", "now"], [("this", "now")], []),
        ("title:git^2 body~", ["title", "git", "2", "body"], [], []),
    ],
)
def test_query(
    text: str, terms: list[str], phrases: list[tuple[str, ...]], excluded: list[tuple[str, ...]]
) -> None:
    query = parse_query(text)
    assert list(query.terms) == terms
    assert list(query.phrases) == phrases
    assert list(query.excluded) == excluded
    assert query.reason is None


def test_a_query_that_can_match_nothing_says_why() -> None:
    assert "leave out" in str(parse_query('-git -"old way"').reason)
    assert "no letter or digit" in str(parse_query("+-*:()^~\\ !").reason)
    assert parse_query("").terms == ()


@given(st.text(max_size=2000))
@example('"' * 1999)
@example('-"' * 1000)
@example("- + * : ( ) ^ ~ \\ AND OR")
def test_every_string_is_a_query(text: str) -> None:
    query = parse_query(text)
    assert (query.reason is None) == bool(query.terms)
    if any(word not in STOP_WORDS for word in query.terms):
        assert not STOP_WORDS & set(query.terms)


@pytest.mark.skipif(not NAUGHTY.exists(), reason="KBPROC_TEST_DATA names no such folder")
def test_naughty_strings_are_queries_and_texts() -> None:
    for path in NAUGHTY.rglob("*.json"):
        for text in json.loads(path.read_text()):
            if isinstance(text, str):
                snippet(text, parse_query(text).terms)


def _marked(text: str, query: str, chars: int = 60) -> tuple[str, list[str]]:
    result = snippet(text, parse_query(query).terms, chars)
    assert len(result.text) <= max(chars, 3)
    return result.text, [result.text[start:end] for start, end in result.highlights]


LONG = "nothing of note " * 30


@pytest.mark.parametrize(
    ("text", "query", "marked"),
    [
        ("Installing git", "install", ["Installing"]),
        (f"{LONG}then install the latest git here {LONG}", "git install", ["install", "git"]),
        (
            "parseQuery, parse_query and C++",
            "parse_query C++",
            ["parseQuery", "parse_query", "C++"],
        ),
        ("café Cafe\u0301 CAFE", "cafe", ["café", "Cafe\u0301", "CAFE"]),
        ("Straße ﬁnal", "strasse final", ["Straße", "ﬁnal"]),
        ("黑豹队的防守丢了三分，的确", "防守的", ["防守"]),
        ("用水使用GitHub而", "github 水", ["水", "GitHub"]),
        ("水道水", "水", ["水", "水"]),
        ("gitter digit git", "git", ["git"]),
        ("_git HTTPGit digitGit digitgit", "git", ["_git", "HTTPGit", "digitGit"]),
        ("x" * 300 + " git " + "y" * 300, "git", ["git"]),
        ("no match at all", "git", []),
        ("", "git", []),
    ],
)
def test_snippets_mark_what_matches(text: str, query: str, marked: list[str]) -> None:
    assert _marked(text, query)[1] == marked


@pytest.mark.parametrize(
    ("text", "word", "marked"),
    [
        ("The wi-fi is on", "wifi", ["wi-fi"]),
        ("A re\u2011opening", "reopened", ["re\u2011opening"]),
        ("It cost 1,284,500 then", "1284500", ["1,284,500"]),
        ("The royal commis-\nsion met", "commissions", ["commis- sion"]),
        ("Mr O’Brien's boat", "obrien", ["O’Brien"]),
        ("Plain patients, pa-tients. Patients-", "patients", ["patients", "pa-tients", "Patients"]),
        ("Since 2.3.1 of my_mod.fn", "v231", ["2.3.1"]),
        ("Since 2.3.1 of my_mod.fn", "mymodfn", ["my_mod.fn"]),
        ("no match", "wifi", []),
    ],
)
def test_words_in_parts_are_marked_as_a_whole(text: str, word: str, marked: list[str]) -> None:
    result = snippet(text, [word], in_parts=[word])
    assert [result.text[start:end] for start, end in result.highlights] == marked


def test_irregular_plurals_are_marked() -> None:
    assert _marked("Sharp knives, two geese", "knife goose")[1] == ["knives", "geese"]


def test_a_snippet_stands_where_most_words_are() -> None:
    text = f"git {LONG} install the latest git from source {LONG}"
    excerpt, marked = _marked(text, "install git")
    assert marked == ["install", "git"]
    assert excerpt.startswith(ELLIPSIS)
    assert excerpt.endswith(ELLIPSIS)
    assert not excerpt[1:].startswith(" ")
    before, after = excerpt.index("install"), len(excerpt) - excerpt.index("git") - 3
    assert abs(before - after) < 20


def test_without_a_match_a_snippet_is_the_beginning() -> None:
    excerpt, marked = _marked(LONG, "git")
    assert LONG.startswith(excerpt.removesuffix(ELLIPSIS))
    assert excerpt.endswith(ELLIPSIS)
    assert marked == []


def test_a_short_text_is_its_own_snippet_on_one_line() -> None:
    assert snippet("one\ntwo\tthree", ["two"]) == Snippet("one two three", [(4, 7)], (4, 7))


def test_an_extract_stands_around_the_best_passage_and_keeps_its_lines() -> None:
    text = f"{LONG}\ninstall git\nfrom source\n{LONG}"
    best = snippet(text, ["install", "git"]).best
    cut = extract(text, best, 100)
    assert len(cut) <= 100 and "\ninstall git\nfrom source\n" in cut
    assert cut.startswith(ELLIPSIS) and cut.endswith(ELLIPSIS) and cut[1:-1] in text
    assert text.startswith(extract(text, None, 100).removesuffix(ELLIPSIS))
    assert extract(text, best, len(text)) == text


@pytest.mark.parametrize("chars", [20, 240, 2000])
@pytest.mark.parametrize("centre", ["first", "densest"])
def test_the_best_passage_does_not_depend_on_the_snippet(chars: int, centre: Centre) -> None:
    text = "A backup. " + "Nothing of it. " * 50 + "Test each backup every night. " + "End. " * 50
    best = snippet(text, ["test", "backup", "night"], chars, centre=centre).best
    assert best and text[slice(*best)] == "Test each backup every night"
    assert snippet(text, ["absent"], chars, centre=centre).best is None


@given(
    st.text(st.sampled_from("aé水道 git\u0301\u200d👩👧🏽ไท\n_-")) | st.text(),
    st.text(st.sampled_from("aé水 git"), max_size=8),
    st.integers(3, 80),
)
def test_a_snippet_never_cuts_letters_apart(text: str, query: str, chars: int) -> None:
    result = snippet(text, parse_query(query).terms, chars)
    assert len(result.text) <= max(chars, len(text) if len(text) <= chars else 0)
    body = result.text.removeprefix(ELLIPSIS)
    if not result.highlights and body and result.text != body:
        assert unicodedata.category(body[0])[0] != "M" or not text.strip()
    ends = 0
    for start, end in result.highlights:
        assert ends <= start < end <= len(result.text)
        ends = end


# ------------------------------------------------------- around the first match

ACUTE = "e\u0301"
FAMILY = "👩\u200d👩\u200d👧"
FILLING = ["a", "é", ACUTE, "ö\u0308\u0323", "水", "道", "ж", "👍🏽", "❤\ufe0f", FAMILY]
FILLING += [" ", "\n", ". ", "nothing ", "of note "]
SLACK = 40 + 8  # how far a cut looks for a word border, plus the longest of FILLING


def _first(text: str, query: str, chars: int) -> tuple[str, list[str]]:
    result = snippet(text, parse_query(query).terms, chars, centre="first")
    return result.text, [result.text[start:end] for start, end in result.highlights]


@pytest.mark.parametrize(
    ("text", "query", "chars", "excerpt", "marked"),
    [
        ("git at the start of a long text", "git", 14, "git at the…", ["git"]),
        ("a long text that ends in git", "git", 14, "…ends in git", ["git"]),
        ("a long text without any match", "git", 14, "a long text…", []),
        ("a long text without a query", "", 14, "a long text…", []),
        ("short git text", "git", 14, "short git text", ["git"]),
        ("", "git", 14, "", []),
        ("one two git six ten", "git", 14, "…two git six…", ["git"]),
        ("one\ntwo git\tsix ten", "git", 14, "…two git six…", ["git"]),
        ("one git two three four install git", "install git", 12, "one git…", ["git"]),
        ("a b c installation d e f", "install", 14, "…installation…", ["installation"]),
        ("a b x" + "yz" * 20 + " c", "x" + "yz" * 20, 14, "…xyzyzyzyzyzy…", ["xyzyzyzyzyzy"]),
        ("用水道用水道用防守用水道用水道用", "防守", 12, "…用水道用防守用水道用…", ["防守"]),
        ("防守用水道用水道用水道", "防守", 8, "防守用水道用…", ["防守"]),
        ("用水道用水道用水道防守", "防守", 8, "…道用水道防守", ["防守"]),
        ("用水道防守用水道用水道用防守", "防守", 9, "用水道防守用水…", ["防守"]),
        ("xx xx xx cafe\u0301 xx xx xx", "cafe", 13, "…xx cafe\u0301 xx…", ["cafe\u0301"]),
        (f"{ACUTE * 9} git {ACUTE * 9}", "git", 13, "…git…", ["git"]),
        (f"{ACUTE * 9}防守{ACUTE * 9}", "防守", 13, f"…{ACUTE * 2}防守{ACUTE * 2}…", ["防守"]),
        (f"{FAMILY * 3}防守{FAMILY * 3}", "防守", 17, f"…{FAMILY}防守{FAMILY}…", ["防守"]),
        ("xx xx xx STRASSE xx xx Straße", "straße", 14, "…xx STRASSE…", ["STRASSE"]),
    ],
)
def test_a_snippet_around_the_first_match(
    text: str, query: str, chars: int, excerpt: str, marked: list[str]
) -> None:
    assert _first(text, query, chars) == (excerpt, marked)


def test_later_matches_draw_the_densest_snippet_only() -> None:
    text = f"{LONG}git {LONG} install the latest git from source {LONG}"
    assert _marked(text, "install git", 240)[1] == ["install", "git"]
    excerpt, marked = _first(text, "install git", 240)
    assert marked == ["git"]
    before, after = excerpt.index("git"), len(excerpt) - excerpt.index("git") - 3
    assert abs(before - after) < 10
    assert 220 <= len(excerpt) <= 240


@given(
    st.lists(st.sampled_from(FILLING), max_size=200),
    st.sampled_from(["git", "Gits", "防守", "cafe\u0301", "installation"]),
    st.lists(st.sampled_from([*FILLING, " git ", " café ", "防守"]), max_size=200),
    st.integers(20, 240),
)
@example([], "git", ["a"] * 300, 20)
@example(["a"] * 300, "防守", [], 20)
@example([FAMILY] * 40, "防守", [FAMILY] * 40, 240)
@example(["nothing "] * 40, "git", ["of note "] * 40, 240)
def test_the_first_match_stands_in_the_middle(
    before: list[str], match: str, after: list[str], chars: int
) -> None:
    gap = "" if match == "防守" else " "
    pieces = [*before, gap, match, gap, *after]
    text, at = "".join(pieces), len("".join(before) + gap)
    terms = parse_query("git install cafe 防守").terms
    cut = snippet(text, terms, chars, centre="first")
    excerpt, highlights = cut.text, cut.highlights
    assert len(excerpt) <= chars

    start, end = highlights[0]
    assert excerpt[start:end].startswith(match)
    assert highlights == sorted(highlights)
    for a, b in highlights[:-1]:  # the last may be cut
        assert set(stems(words(excerpt[a:b]))) & set(stems(terms))

    head, tail = excerpt.startswith(ELLIPSIS), excerpt.endswith(ELLIPSIS)
    body = excerpt[head : len(excerpt) - tail]
    margin = start - head
    right = len(body) - margin - len(match)
    first, last = at - margin, at - margin + len(body)
    assert text[first:last].replace("\n", " ") == body
    assert (head, tail) == (first > 0, last < len(text))
    assert not head or margin >= right - SLACK
    assert not tail or right >= margin - SLACK
    assert not {first, last} & _inside_letters(pieces)


def _inside_letters(pieces: list[str]) -> set[int]:
    """The offsets inside pieces that people read as one letter or one emoji."""
    positions, at = set(), 0
    for piece in pieces:
        if piece in FILLING and not piece.isascii():
            positions |= set(range(at + 1, at + len(piece)))
        at += len(piece)
    return positions


@given(st.text(), st.text(max_size=8), st.integers(3, 80))
def test_any_text_has_a_snippet_around_its_first_match(text: str, query: str, chars: int) -> None:
    terms = parse_query(query).terms
    first, densest = (snippet(text, terms, chars, centre=way) for way in ("first", "densest"))
    assert len(first.text) <= max(chars, len(text) if len(text) <= chars else 0)
    assert bool(first.highlights) == bool(densest.highlights)
    assert all(0 <= start < end <= len(first.text) for start, end in first.highlights)


def test_importing_is_light() -> None:
    code = (
        "import sys, kbproc.base.text.analysis, kbproc.base.text.snippet;"
        "import kbproc.knowledge.search.fusion;"
        "heavy = {'tantivy', 'numpy', 'duckdb'} & set(sys.modules); assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
