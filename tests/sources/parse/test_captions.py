"""Subtitles become passages that are cited by the time at which they are heard."""

from __future__ import annotations

import pytest

from kbproc.base.errors import KbprocError
from kbproc.engine.sources.parse.blocks import Block
from kbproc.engine.sources.parse.captions import parse


def shown(source: str, name: str = "a.srt") -> list[tuple[str | None, str]]:
    return [(block.section, block.text) for block in parse(source.encode(), name).blocks]


def test_cues_of_subrip_are_a_passage_with_its_times() -> None:
    source = (
        "1\r\n00:00:01,500 --> 00:00:02,000\r\nThe <i>crane</i>\r\nlifts.\r\n\r\n"
        "2\r\n00:00:03,000 --> 01:00:04,999\r\n{\\an8}Its hook &amp; rope.\r\n"
    )
    assert parse(source.encode(), "a.srt").blocks == [
        Block(text="The crane lifts.\nIts hook & rope.", section="00:00:01–01:00:04")
    ]


def test_cues_of_webvtt_lose_their_names_settings_and_notes() -> None:
    source = (
        "WEBVTT - title\n\nSTYLE\n::cue {}\n\nNOTE a comment\n\nintro\n"
        "00:01.000 --> 00:02.000 align:start\n<v.loud Ann Lee>Up!</v>\n\n"
        "NOTE another\n\n00:03.000 --> 00:04.000\nDown.\n"
    )
    parsed = parse(source.encode(), "a.vtt")
    assert parsed.blocks == [Block(text="Ann Lee: Up!\nDown.", section="00:01–00:04")]
    assert parsed.unread == {"replaced_bytes": 0, "comments": 2}


def test_a_line_right_below_words_is_no_name_of_a_cue() -> None:
    cues = "00:01.000 --> 00:02.000\nOne\nTwo\n00:03.000 --> 00:04.000\nThree"
    assert shown(f"WEBVTT\n\n{cues}", "a.vtt") == [("00:01–00:04", "One Two\nThree")]
    named = cues.replace("Two\n", "\nTwo\n")
    assert shown(f"WEBVTT\n\n{named}", "a.vtt") == [("00:01–00:04", "One\nThree")]
    assert shown(named.replace(".000", ",000")) == [("00:01–00:04", "One Two\nThree")]


def test_a_passage_ends_where_it_would_grow_too_long() -> None:
    cues = "".join(f"0:0{n}.000 --> 0:0{n}.500\n{str(n) * 300}\n\n" for n in range(3))
    assert shown("WEBVTT\n\n" + cues, "a.vtt") == [
        ("0:00–0:01", "0" * 300 + "\n" + "1" * 300),
        ("0:02–0:02", "2" * 300),
    ]


def test_a_blank_line_within_a_cue_of_subrip_loses_no_words() -> None:
    source = "Above\n\n1\n0:01,0 --> 0:02,0\nOne\n\nstill one\n\n2\n0:03,0 --> 0:04,0\nTwo"
    assert shown(source) == [("0:01–0:04", "Above One still one\nTwo")]


def test_a_number_that_is_spoken_stays_where_another_line_names_the_cue() -> None:
    source = "1\n0:01,0 --> 0:02,0\n42\n\n2\n0:03,0 --> 0:04,0\nTwo"
    assert shown(source) == [("0:01–0:04", "42\nTwo")]


@pytest.mark.parametrize("source", ["", "Just words.", "00:01 -> 00:02\nx", "0:01,0 --> 0:02,0\n"])
def test_a_file_without_cues_is_read_as_text(source: str) -> None:
    parsed = parse(source.encode(), "a.srt")
    assert "\n".join(block.text for block in parsed.blocks) == source.strip()
    assert {block.section for block in parsed.blocks} <= {None}


def test_bytes_that_are_no_text_are_refused_and_bad_ones_are_counted() -> None:
    with pytest.raises(KbprocError) as caught:
        parse(bytes(range(16)) * 40, "a.srt")
    assert caught.value.type == "input.unsupported_type"
    parsed = parse("0:01,0 --> 0:02,0\nGröße ß ".encode() + b"\xff\n", "a.srt")
    assert parsed.blocks[0].text == "Größe ß \ufffd"
    assert parsed.unread == {"replaced_bytes": 1, "comments": 0}


def cues(*passages: tuple[float, float, str]) -> str:
    lines = (
        f"00:{b:06.3f} --> 00:{e:06.3f} align:start\n{text}\n\n".replace("|", "\n")
        for b, e, text in passages
    )
    return "WEBVTT\n\n" + "".join(lines)


ROLLING: list[tuple[str, str, str]] = [
    (
        "words that appear one by one, as YouTube writes them",
        cues(
            (1, 3, " |the<00:01.5><c> tide</c>"),
            (3, 3.01, "the tide| "),
            (3.01, 5, "the tide|turns<00:04><c> soon</c>"),
            (5, 5.01, "turns soon| "),
            (5.01, 7, "turns soon|soon"),
        ),
        "the tide|turns soon|soon",
    ),
    (
        "two lines that roll up, with a sentence that is said twice",
        cues((1, 2, "One"), (2, 3, "One|Two"), (3, 4, "Two|Two"), (4, 5, "Two|Three")),
        "One|Two|Two|Three",
    ),
    (
        "three lines that roll up, and a pause",
        cues((1, 2, "A"), (2, 3, "A|B"), (3, 4, "A|B|C"), (4, 5, "B|C|D"), (9, 10, "D|E")),
        "A|B|C|D|D E",
    ),
    (
        "a line that grows",
        cues((1, 2, "We"), (2, 3, "We sail"), (3, 4, "We sail at noon"), (4, 5, "Now go")),
        "We sail at noon|Now go",
    ),
    (
        "a song that repeats its lines",
        cues((1, 2, "La la"), (2, 3, "La la"), (3, 4, "La la"), (4, 5, "Oh"), (5, 6, "Oh")),
        "La la|La la|La la|Oh|Oh",
    ),
    (
        "one answer that repeats a question",
        cues((1, 2, "Who?"), (2, 3, "Who?|Ann."), (3, 4, "When?"), (4, 5, "Now."), (5, 6, "Go.")),
        "Who?|Who? Ann.|When?|Now.|Go.",
    ),
]


@pytest.mark.parametrize(("source", "text"), [each[1:] for each in ROLLING])
def test_rolling_captions_bring_a_line_once_and_repetitions_stay(source: str, text: str) -> None:
    assert "\n".join(words for _, words in shown(source, "a.vtt")) == text.replace("|", "\n")
    subrip = source.removeprefix("WEBVTT\n\n").replace(".", ",").replace(" align:start", "")
    if "<" not in source and not any(mark in text for mark in ".,"):
        assert "\n".join(words for _, words in shown(subrip)) == text.replace("|", "\n")
