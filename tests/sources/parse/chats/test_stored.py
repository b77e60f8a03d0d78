"""A conversation in kbproc's own shape is read as it was written, and odd lines are counted."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from kbproc.engine.sources.parse.chats.stored import read, recognises
from kbproc.engine.sources.parse.chats.turns import ChatMessage, ChatTranscript, encoded
from tests.kit.chats import ASKED, lines

HEAD = {"kbproc": "conversation", "version": 1, "client": "pi", "id": "7", "title": "Cranes"}


def message(**more: Any) -> dict[str, Any]:
    return {"turn": 1, "role": "user", "text": "Lift?", **more}


def test_a_conversation_is_read_as_it_was_written() -> None:
    talk = ChatTranscript(
        client="codex",
        id="7",
        title="Cranes",
        project="/home/ann",
        model="m",
        messages=[
            ChatMessage(turn=1, role="user", at=ASKED, name="Ann", text="Lift?"),
            ChatMessage(turn=3, role="result", text="4 t"),
        ],
        unread=Counter({"pictures": 2}),
    )
    data = encoded(talk)
    assert recognises(data)
    [again] = read(data)
    again.unread = +again.unread
    assert encoded(again) == data


def test_a_file_may_hold_several_conversations() -> None:
    data = lines(message(text="before any"), HEAD, message(), {**HEAD, "id": "8"}, message())
    first, second = read(data)
    assert [(talk.id, len(talk.messages)) for talk in (first, second)] == [("7", 1), ("8", 1)]
    assert read(b"") == []


@pytest.mark.parametrize(
    "record", [{"role": "system", "text": "x"}, {"role": "user"}, {"role": "user", "text": 5}, {}]
)
def test_a_line_that_is_no_message_is_counted(record: dict[str, Any]) -> None:
    [talk] = read(lines(HEAD, record, message()))
    assert [each.text for each in talk.messages] == ["Lift?"]
    assert talk.unread == {"damaged_lines": 1}


def test_a_line_that_is_no_json_is_counted_with_the_first_conversation() -> None:
    first, second = read(lines(HEAD, message()) + b"{no json\n" + lines(HEAD, message()))
    assert (first.unread["damaged_lines"], second.unread["damaged_lines"]) == (1, 0)


@pytest.mark.parametrize("turn", [None, "1", True, 0, -1, 1 << 31, 1.5])
def test_a_turn_that_is_no_number_of_one_is_numbered_anew(turn: Any) -> None:
    [talk] = read(lines(HEAD, message(turn=turn), message(turn=(1 << 31) - 1)))
    assert [each.turn for each in talk.messages] == [0, (1 << 31) - 1]


def test_only_known_counts_above_zero_are_read() -> None:
    unread = {"pictures": 2, "comments": 0, "objects": -1, "odd": 3, "cells": "4", "tags": 1 << 40}
    [talk] = read(lines({**HEAD, "unread": unread, "client": 5, "project": ""}, message()))
    assert talk.unread == {"pictures": 2}
    assert (talk.client, talk.project, talk.model) == ("kbproc", None, None)


def test_secrets_are_taken_out_once_more() -> None:
    [talk] = read(lines(HEAD, message(text="The key is AKIAQ3EGRZ2JX7WDNT5K.")))
    assert "AKIAQ3EGRZ2JX7WDNT5K" not in talk.messages[0].text
    assert talk.messages[0].text.startswith("The key is ")
    assert sum(talk.unread.values()) == 1


def test_other_heads_are_not_recognised() -> None:
    for head in (b"", b"{}", b'{"kbproc": "conversations"}', b'{"a": 1, "kbproc": "conversation"}'):
        assert not recognises(head)
