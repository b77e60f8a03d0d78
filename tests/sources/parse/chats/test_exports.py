"""Exports of ChatGPT, Claude and Slack become the conversations that they hold."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from kbproc.engine.events.origin import AGENT, PERSON, WEB
from kbproc.engine.sources.parse.chats import chatgpt, claude_ai, slack
from kbproc.engine.sources.parse.chats.turns import ChatTranscript
from kbproc.engine.sources.parse.formats import detect, parse
from tests.kit import chats

TITLE = "Ropes of the crane"
WORDS = [
    ("user", None, chats.QUESTION),
    ("assistant", None, chats.ANSWER),
    ("user", None, chats.SECOND),
    ("assistant", None, chats.SECOND_ANSWER),
]


def shown(talk: ChatTranscript) -> list[tuple[str, str | None, str]]:
    return [(each.role, each.name, each.text) for each in talk.messages]


READERS: list[Any] = [chatgpt, claude_ai, slack]
EXPORTS = dict(zip(READERS, (chats.chatgpt(), chats.claude(), chats.slack_day()), strict=True))


@pytest.mark.parametrize("reader", EXPORTS, ids=lambda reader: reader.CLIENT)
def test_an_export_is_known_by_its_head_and_by_its_own_reader_alone(reader: Any) -> None:
    data = EXPORTS[reader]
    assert [each.CLIENT for each in EXPORTS if each.recognises(data[:4096])] == [reader.CLIENT]
    assert not any(reader.recognises(head) for head in (b"", b"{}", b"[]", b'[{"mapping": 1}]'))


@pytest.mark.parametrize("reader", EXPORTS, ids=lambda reader: reader.CLIENT)
@pytest.mark.parametrize("data", [b"", b"7", b"[1]", b"[{"])
def test_other_json_is_refused_by_the_decoder(reader: Any, data: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        reader.read(data)


# ------------------------------------------------------------------ ChatGPT


def node(role: str, parent: str, **content: Any) -> dict[str, Any]:
    """Returns a node of a conversation; `content`: of its message."""
    more: dict[str, Any] = {
        key: content.pop(key) for key in ("recipient", "metadata") if key in content
    }
    message = {"author": {"role": role, "name": "python"}, "content": content, **more}
    return {"message": message, "parent": parent}


def conversation(mapping: dict[str, Any], **more: Any) -> ChatTranscript:
    [talk] = chatgpt.read(json.dumps([{"mapping": mapping, **more}]).encode())
    return talk


def test_of_a_tree_the_branch_that_was_shown_last_is_read() -> None:
    [talk] = chatgpt.read(chats.chatgpt())
    tool = [("call", "python", chats.COMMAND), ("result", "python", chats.OUTPUT)]
    assert shown(talk) == [WORDS[0], *tool, *WORDS[1:]]
    assert [talk.messages[0].at, talk.messages[-1].at] == [chats.ASKED, chats.LAST]
    assert (talk.client, talk.id, talk.title, talk.model) == (
        "chatgpt",
        f"{chats.UUID}5",
        TITLE,
        "gpt-6",
    )
    assert talk.unread["other_branches"] == 1


def test_a_tree_without_a_current_node_ends_with_its_last_and_circles_end() -> None:
    mapping = {
        "a": node("user", "b", parts=["One."]),
        "b": node("assistant", "a", parts=["Two."]),
    }
    assert [text for _, _, text in shown(conversation(mapping))] == ["One.", "Two."]
    assert [text for _, _, text in shown(conversation(mapping, current_node="a"))] == [
        "Two.",
        "One.",
    ]
    assert conversation(mapping, current_node="gone").unread["other_branches"] == 2
    assert conversation({}).messages == []


def test_context_and_hidden_messages_of_chatgpt_are_not_read_and_thoughts_are_counted() -> None:
    mapping = {
        "a": node("system", "", parts=["System."]),
        "b": node("user", "a", content_type="user_editable_context", parts=["About me."]),
        "c": node(
            "user",
            "b",
            parts=["Hidden."],
            metadata={"is_visually_hidden_from_conversation": True},
        ),
        "d": node("assistant", "c", content_type="thoughts", parts=["Hm."]),
        "e": node("assistant", "d", content_type="code", text="1 + 1", recipient="python"),
        "f": node("tool", "e", content_type="execution_output", text="2"),
        "g": node("assistant", "f", parts=["Two."], recipient="all"),
    }
    talk = conversation(mapping)
    assert shown(talk) == [
        ("call", "python", "1 + 1"),
        ("result", "python", "2"),
        ("assistant", None, "Two."),
    ]
    assert (talk.unread["thoughts"], talk.unread["other_branches"]) == (1, 0)


def test_pictures_and_files_of_chatgpt_are_counted() -> None:
    parts = [
        "See.",
        {"content_type": "image_asset_pointer", "asset_pointer": "p"},
        {"content_type": "image_asset_pointer", "asset_pointer": "q"},
        {"content_type": "audio_asset_pointer", "asset_pointer": "a"},
        {"content_type": "audio_transcription", "text": "Heard."},
        5,
    ]
    talk = conversation({"a": node("user", "", parts=parts)}, gizmo_id="g-1", id="7")
    assert shown(talk) == [("user", None, "See.\n\nHeard.")]
    assert (talk.unread["pictures"], talk.unread["attachments"]) == (2, 1)
    assert (talk.project, talk.id) == ("g-1", "7")


def test_titles_of_quoted_pages_and_names_of_files_are_read() -> None:
    mark = "\ue200cite\ue202turn0search0\ue201"
    page = {"title": "Rope tables", "url": "https://a.org/t"}
    shown_page = "Rope tables (https://a.org/t)"
    more = {"title": "Steel", "url": "https://b.org"}
    items = [{**page, "supporting_websites": [more]}]
    grouped = {"matched_text": mark, "type": "grouped_webpages", "items": items}
    quote = {"content_type": "tether_quote", "domain": "a.org", **page, "text": "12 mm"}
    mapping = {
        "a": node("tool", "", **quote),
        "b": node(
            "assistant",
            "a",
            parts=[f"Use it.{mark}"],
            metadata={
                "content_references": [grouped, {"type": "sources_footnote", "sources": [more]}],
            },
        ),
        "c": node(
            "assistant",
            "b",
            parts=["By the table\u301011\u2020source\u3011."],
            metadata={
                "citations": [{"metadata": {"type": "webpage", **page}}, {"metadata": None}, 5],
            },
        ),
        "d": node(
            "user",
            "c",
            parts=["See."],
            metadata={
                "attachments": [
                    {"name": "plan.pdf", "mime_type": "application/pdf"},
                    {"name": "crane.png", "mime_type": "image/png"},
                ]
            },
        ),
        "e": node("assistant", "d", parts=[f"No page.{mark}"]),
    }
    talk = conversation(mapping)
    assert [text for _, _, text in shown(talk)] == [
        f"{shown_page}\n\n12 mm",
        f"Use it. ({shown_page}; Steel (https://b.org))",
        f"By the table.\n{shown_page}",
        "See.\n[file: plan.pdf]\n[picture: crane.png]",
        "No page.",
    ]
    assert (talk.unread["attachments"], talk.unread["pictures"]) == (1, 0)


@pytest.mark.parametrize("reader", [chatgpt, claude_ai], ids=lambda reader: reader.CLIENT)
def test_a_file_with_one_conversation_is_that_conversation(reader: Any) -> None:
    [record] = json.loads(EXPORTS[reader])
    for indent in (None, 2):
        data = json.dumps(record, indent=indent).encode()
        assert detect("talk.json", data[:4096], tail=data) == "conversation"
        parsed = parse(data, "conversation", "talk.json")
        assert (parsed.title, parsed.parts, parsed.metadata["turns"]) == (TITLE, [], 2)


# ------------------------------------------------------------------ Claude


def test_messages_of_claude_have_their_calls_and_outputs() -> None:
    [talk] = claude_ai.read(chats.claude())
    tool = [("call", "bash", chats.COMMAND), ("result", "bash", chats.OUTPUT)]
    assert shown(talk) == [WORDS[0], *tool, *WORDS[1:]]
    assert (talk.client, talk.id, talk.title) == ("claude", f"{chats.UUID}6", TITLE)
    assert [talk.messages[0].at, talk.messages[-1].at] == [chats.ASKED, chats.LAST]


def test_older_messages_of_claude_are_texts_and_attachments_are_read() -> None:
    messages: list[Any] = [
        {
            "sender": "human",
            "text": "Lift?",
            "attachments": [{"file_name": "a.txt", "extracted_content": "4 t"}, 5],
            "files": [{"file_name": "b.png"}, {"file_name": "c.png"}],
        },
        {"sender": "assistant", "text": "unused", "content": [{"type": "thinking"}]},
        {"sender": "assistant", "content": [{"text": "Yes.", "start_timestamp": chats.SAID}]},
        "odd",
    ]
    record = {"chat_messages": messages, "project": {"name": "Cranes"}, "model": "claude-7"}
    [talk] = claude_ai.read(json.dumps([record]).encode())
    assert shown(talk) == [
        ("user", None, "Lift?"),
        ("result", "a.txt", "4 t"),
        ("user", None, "[file: b.png]\n[file: c.png]"),
        ("assistant", None, "Yes."),
    ]
    assert talk.messages[-1].at == chats.SAID
    assert (talk.project, talk.model) == ("Cranes", "claude-7")
    assert (talk.unread["attachments"], talk.unread["thoughts"]) == (2, 1)


# ------------------------------------------------------------------ Slack


def test_one_day_of_slack_is_a_conversation_whose_threads_are_turns() -> None:
    [talk] = slack.read(chats.slack_day())
    assert [(each.turn, each.name, each.text) for each in talk.messages] == [
        (1, "U1", chats.QUESTION),
        (1, "U2", f"@U1 {chats.ANSWER} the table (https://a.org/t)"),
        (2, "U2", "Lunch & tea?"),
    ]
    assert (talk.client, talk.title, talk.id) == ("slack", "Slack, 2026-03-05", "2026-03-05")


def test_a_month_of_a_channel_is_a_conversation_with_the_names_of_people() -> None:
    users = [
        {"id": "U1", "profile": {"display_name": "Ann"}},
        {"id": "U2", "real_name": "Bo Li"},
    ]
    late = [{"type": "message", "user": "U2", "ts": "1775000000.000100", "text": "April"}]
    files = {
        "users.json": json.dumps(users).encode(),
        "channels.json": b"[]",
        "crane/2026-03-05.json": chats.slack_day(),
        "crane/2026-03-06.json": json.dumps(late).encode(),
        "crane/2026-04-01.json": json.dumps(late).encode(),
        "crane/notes.json": b"no json",
        "2026-04-01.json": b"no json",
    }
    march, april = slack.from_files(files)
    assert (march.title, march.id, march.project) == ("#crane, 2026-03", "crane-2026-03", "crane")
    assert [(each.name, each.text) for each in march.messages] == [
        ("Ann", chats.QUESTION),
        ("Bo Li", f"@Ann {chats.ANSWER} the table (https://a.org/t)"),
        ("Bo Li", "Lunch & tea?"),
        ("Bo Li", "April"),
    ]
    assert (april.title, len(april.messages)) == ("#crane, 2026-04", 1)
    assert list(slack.from_files({})) == []


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("<@U9|ann> hi", "@ann hi"),
        ("<#C1|crane> and <#C2>", "#crane and #C2"),
        ("<!here> <!subteam^S1|lifters>", "@here @lifters"),
        ("<!subteam^S1|@lifters>, <!date^1392734382^{date}|18 February>", "@lifters, 18 February"),
        ("<https://a.org>", "https://a.org"),
        ("<https://a.org|https://a.org>", "https://a.org"),
        ("a &lt;b&gt; &amp;amp;", "a <b> &amp;"),
        ("1 < 2", "1 < 2"),
    ],
)
def test_marks_of_slack_become_names_and_addresses(text: str, plain: str) -> None:
    [talk] = slack.read(json.dumps([{"text": text, "ts": "1.0"}]).encode())
    assert [each.text for each in talk.messages] == [plain]


def test_a_speaker_of_slack_is_named_by_what_is_there_and_files_are_counted() -> None:
    messages = [
        {"text": "a", "ts": "1", "user": "U1", "user_profile": {"real_name": "Ann Lee"}},
        {"text": "b", "ts": "2", "username": "robot"},
        {"text": "c", "ts": "3", "bot_profile": {"name": "helper"}},
        {"text": "d", "ts": "4", "files": [{"mimetype": "image/png"}, {"mimetype": "text/plain"}]},
        {"text": "joined", "ts": "5", "subtype": "channel_join"},
    ]
    [talk] = slack.read(json.dumps(messages).encode())
    assert [each.name for each in talk.messages] == ["Ann Lee", "robot", "helper", "unknown"]
    assert (talk.unread["pictures"], talk.unread["attachments"]) == (1, 1)


def one_message(**message: Any) -> ChatTranscript:
    [talk] = slack.read(
        json.dumps([{"type": "message", "ts": "1772719390.000100", **message}]).encode()
    )
    return talk


def section(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "section", "text": {"type": "mrkdwn", "text": text}, **more}


def rich(*elements: dict[str, Any]) -> dict[str, Any]:
    return {"type": "rich_text", "elements": [{"type": "rich_text_section", "elements": elements}]}


ALERT = {
    "fallback": "Alert: crane 7",
    "pretext": "Firing",
    "title": "Load too high",
    "title_link": "https://g.example/7",
    "text": "Crane 7 lifts <https://g.example/t|9 t>.",
    "fields": [{"title": "Severity", "value": "critical"}, {"value": "pier 4"}, 5],
    "footer": "Grafana",
}


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            {"attachments": [ALERT]},
            "Firing\nLoad too high (https://g.example/7)\nCrane 7 lifts 9 t (https://g.example/t)."
            "\nSeverity: critical\npier 4\nGrafana",
        ),
        ({"attachments": [{"fallback": "Build 12 failed"}], "text": "CI"}, "CI\nBuild 12 failed"),
        (
            {"blocks": [section("*Deploy* done", fields=[{"text": "env: prod"}]), {"type": "x"}]},
            "*Deploy* done\nenv: prod",
        ),
        (
            {
                "text": "*Deploy* &amp; go <@U1>",
                "blocks": [
                    rich(
                        {"type": "text", "text": "Deploy", "style": {"bold": True}},
                        {"type": "text", "text": " & go "},
                        {"type": "user", "user_id": "U1"},
                    )
                ],
            },
            "*Deploy* & go @U1",
        ),
        (
            {
                "blocks": [
                    rich(
                        {"type": "text", "text": "a <b> "},
                        {"type": "link", "url": "https://a.org", "text": "the table"},
                        {"type": "emoji", "name": "wave"},
                    )
                ]
            },
            "a <b> the table (https://a.org):wave:",
        ),
        (
            {
                "blocks": [
                    {
                        "type": "table",
                        "rows": [
                            [
                                {"type": "raw_text", "text": "Crane"},
                                rich({"type": "text", "text": "Load"}),
                            ],
                            "odd",
                        ],
                    },
                    {"type": "context", "elements": [{"type": "image", "alt_text": "a chart"}]},
                ]
            },
            "Crane | Load\na chart",
        ),
        (
            {
                "attachments": [
                    {
                        "is_msg_unfurl": True,
                        "from_url": "https://x.slack.com/p1",
                        "author_name": "Bo",
                        "text": "Use 12 mm.",
                        "message_blocks": [
                            {"message": {"blocks": [rich({"type": "text", "text": "Use 12 mm."})]}}
                        ],
                    }
                ]
            },
            "Bo\nUse 12 mm.",
        ),
        (
            {
                "text": "See",
                "files": [
                    {"name": "loads.csv", "title": "Loads", "mimetype": "text/csv"},
                    {"name": "crane.png", "mimetype": "image/png"},
                ],
            },
            "See\n[file: Loads (loads.csv)]\n[picture: crane.png]",
        ),
        ({"files": [{"name": "plan.pdf"}]}, "[file: plan.pdf]"),
    ],
)
def test_what_slack_shows_of_a_message_is_read(message: dict[str, Any], expected: str) -> None:
    assert [each.text for each in one_message(**message).messages] == [expected]


def test_apps_speak_for_themselves_and_previews_are_of_the_web() -> None:
    page = {"from_url": "https://a.org", "service_name": "A", "title": "Ropes", "text": "12 mm"}
    talk = one_message(text="Look: <https://a.org>", user="U1", attachments=[page])
    assert shown(talk) == [
        ("user", "U1", "Look: https://a.org"),
        ("result", "web preview", "Ropes (https://a.org)\n12 mm"),
    ]
    assert (talk.origin, one_message(text="a").origin) == (WEB, PERSON)
    app = one_message(subtype="bot_message", username="Grafana", attachments=[ALERT])
    assert [(each.role, each.name) for each in app.messages] == [("assistant", "Grafana")]
    assert one_message(bot_id="B1", text="a").origin == AGENT


def test_a_day_of_slack_is_known_by_an_alert_at_its_beginning() -> None:
    alert = {"subtype": "bot_message", "attachments": [{"text": "x" * 3000}]}
    day = json.dumps([{**alert, "type": "message", "ts": "1772719390.000100"}]).encode()
    assert slack.recognises(day[:4096])
    deep: dict[str, Any] = {"type": "rich_text_section", "elements": []}
    for _ in range(200):
        deep = {"type": "rich_text_list", "elements": [deep]}
    assert one_message(blocks=[{"type": "rich_text", "elements": [deep]}, deep]).messages == []
