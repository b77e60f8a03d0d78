"""Small logs and exports of conversations, with the phrases that a reader sees in each."""

from __future__ import annotations

import json
from typing import Any

from tests.kit import chats

Record = dict[str, Any]
# Name of a file, its bytes, phrases in it, words that are not, kinds that are counted as unread.
File = tuple[str, bytes, tuple[str, ...], tuple[str, ...], tuple[str, ...]]
SESSION = chats.UUID + "9"


def code(uuid: str, parent: str | None, text: str, **more: Any) -> Record:
    """Returns a record of Claude Code; an answer's uuid begins with "a"."""
    role = "assistant" if uuid.startswith("a") else "user"
    return {
        "parentUuid": parent,
        "isSidechain": False,
        "sessionId": SESSION,
        "type": role,
        "uuid": uuid,
        "timestamp": f"2026-03-05T14:0{uuid[1]}:{'30' if role == 'assistant' else '00'}.000Z",
        "message": {"role": role, "id": uuid, "content": text},
        **more,
    }


def pi(id: str, parent: str | None, text: str) -> Record:
    role = "assistant" if id.startswith("a") else "user"
    at = f"2026-03-05T15:0{id[1]}:{'30' if role == 'assistant' else '00'}.000Z"
    message = {"role": role, "content": [{"type": "text", "text": text}]}
    return {"type": "message", "id": id, "parentId": parent, "timestamp": at, "message": message}


PI = {"type": "session", "version": 3, "id": SESSION, "timestamp": chats.ASKED, "cwd": "/"}
ROLLED_BACK = {"type": "event_msg", "payload": {"type": "thread_rolled_back", "num_turns": 1}}
BEGINNING = [code("u1", None, "Which winch?"), code("a1", "u1", "The blue winch.")]
ANEW = [
    *BEGINNING,
    code("u2", "a1", "Sell the winch."),
    code("a2", "u2", "It is sold."),
    code("u3", "a1", "Oil the winch."),
    code("a3", "u3", "It runs again."),
]


def slack(**message: Any) -> bytes:
    return json.dumps([{"type": "message", "ts": "1772719390.000100", **message}]).encode()


def queued(prompt: str) -> Record:
    attachment = {"type": "queued_command", "prompt": prompt, "commandMode": "prompt"}
    return {**code("x1", "a1", ""), "type": "attachment", "attachment": attachment}


def operation(name: str, **more: Any) -> Record:
    return {"type": "queue-operation", "operation": name, "timestamp": chats.SAID, **more}


def said(role: str, text: str, **metadata: Any) -> Record:
    content = {"content_type": "text", "parts": [text]}
    return {"author": {"role": role}, "content": content, "metadata": metadata}


def chatgpt(*messages: Record) -> bytes:
    mapping = {
        f"n{number}": {"message": message, "parent": f"n{number - 1}" if number else None}
        for number, message in enumerate(messages)
    }
    talk = {"title": "Winches", "create_time": 1772719390.0, "mapping": mapping}
    return json.dumps(talk).encode()


def claude(*messages: Record) -> bytes:
    talk = {"uuid": SESSION, "name": "Winches", "created_at": chats.ASKED}
    return json.dumps({**talk, "chat_messages": list(messages)}, indent=2).encode()


def talk_of_claude(uuid: str, parent: str, text: str) -> Record:
    sender = "assistant" if uuid.startswith("a") else "human"
    return {"uuid": uuid, "parent_message_uuid": parent, "sender": sender, "text": text}


PAGE = {"title": "Rope tables", "url": "https://a.org/t"}
MARK = "\ue200cite\ue202turn0search0\ue201"
QUOTE = {"content_type": "tether_quote", "domain": "a.org", **PAGE, "text": "steel is 12 mm"}


TALKS: dict[str, list[File]] = {
    "apps, previews and files in Slack": [
        (
            "alert.json",
            slack(attachments=[{"fallback": "Crane seven is overloaded"}]),
            ("Crane seven is overloaded",),
            (),
            (),
        ),
        (
            "fields.json",
            slack(attachments=[{"title": "Load", "fields": [{"title": "Pier", "value": "four"}]}]),
            ("Load", "Pier four"),
            (),
            (),
        ),
        (
            "preview.json",
            slack(text="See", attachments=[{"from_url": "https://a.org", "title": "Rope tables"}]),
            ("See", "Rope tables"),
            (),
            (),
        ),
        (
            "file.json",
            slack(files=[{"name": "winch-plan.pdf", "mimetype": "application/pdf"}]),
            ("winch plan",),
            (),
            ("attachments",),
        ),
        (
            "blocks.json",
            slack(
                blocks=[
                    {"type": "header", "text": {"type": "plain_text", "text": "Deploy is done"}},
                    {"type": "section", "fields": [{"type": "mrkdwn", "text": "north quay"}]},
                ]
            ),
            ("Deploy is done", "north quay"),
            (),
            (),
        ),
        (
            "shared.json",
            slack(
                text="As Bo said",
                attachments=[{"is_msg_unfurl": True, "author_name": "Bo", "text": "Use steel"}],
            ),
            ("As Bo said", "Use steel"),
            (),
            (),
        ),
    ],
    "branches of a session that were left behind": [
        (
            "anew.jsonl",
            chats.lines(*ANEW),
            ("blue winch", "runs again"),
            ("Sell", "sold"),
            ("other_branches",),
        ),
        (
            "first.jsonl",
            chats.lines(code("u1", None, "Sell it."), code("u2", None, "Oil it.")),
            ("Oil it",),
            ("Sell",),
            ("other_branches",),
        ),
        (
            "tree.jsonl",
            chats.lines(
                PI,
                pi("u1", None, "Which hook?"),
                pi("a1", "u1", "The red hook."),
                pi("u2", "a1", "Sell the hook."),
                pi("u3", "a1", "Grease the hook."),
            ),
            ("red hook", "Grease the hook"),
            ("Sell",),
            ("other_branches",),
        ),
        (
            "back.jsonl",
            chats.codex() + chats.lines(ROLLED_BACK),
            ("Which rope does the crane need",),
            ("Every year",),
            ("other_branches",),
        ),
        (
            "claude.json",
            claude(
                talk_of_claude("u1", "", "Which winch?"),
                talk_of_claude("a1", "u1", "The grey winch."),
                talk_of_claude("a2", "u1", "The green winch."),
            ),
            ("green winch",),
            ("grey",),
            ("other_branches",),
        ),
    ],
    "what was typed while an agent worked": [
        (
            "attached.jsonl",
            chats.lines(*BEGINNING, queued("Use the spare rope")),
            ("Use the spare rope",),
            (),
            (),
        ),
        (
            "queue.jsonl",
            chats.lines(
                code("u2", None, "Which buoy?"),
                operation("enqueue", content="The orange buoy"),
                operation("remove"),
            ),
            ("orange buoy",),
            (),
            (),
        ),
        (
            "returned.jsonl",
            chats.lines(
                code("u3", None, "Which mast?"),
                operation("enqueue", content="Unsent words"),
                operation("popAll"),
                queued("The tall mast"),
            ),
            ("tall mast",),
            ("Unsent",),
            (),
        ),
    ],
    "one conversation in a file, and the pages and files in it": [
        (
            "one.json",
            chatgpt(said("user", "Which winch?"), said("assistant", "The blue winch.")),
            ("blue winch",),
            (),
            (),
        ),
        (
            "quoted.json",
            chatgpt({"author": {"role": "tool"}, "content": QUOTE}),
            ("Rope tables", "steel is 12 mm"),
            (),
            (),
        ),
        (
            "cited.json",
            chatgpt(
                said(
                    "assistant",
                    f"Use steel{MARK} for it.",
                    content_references=[{"matched_text": MARK, "items": [PAGE]}],
                )
            ),
            ("Use steel", "Rope tables"),
            ("turn0search0",),
            (),
        ),
        (
            "uploaded.json",
            chatgpt(said("user", "See.", attachments=[{"name": "winch-plan.pdf"}])),
            ("winch plan",),
            (),
            ("attachments",),
        ),
        (
            "claude-one.json",
            claude({"sender": "human", "text": "Which buoy?", "files": [{"file_name": "b.csv"}]}),
            ("Which buoy", "b.csv"),
            (),
            ("attachments",),
        ),
    ],
    "a session that was resumed in a new file": [
        ("a.jsonl", chats.lines(*BEGINNING), ("blue winch",), (), ()),
        (
            "b.jsonl",
            chats.lines(*BEGINNING, code("u4", "a1", "Paint the winch.")),
            ("Paint the winch",),
            ("blue",),
            ("copied_messages",),
        ),
        (
            "c.jsonl",
            chats.lines(
                *BEGINNING, code("u4", "a1", "Paint the winch."), code("a4", "u4", "It is white.")
            ),
            ("It is white",),
            ("blue",),
            ("copied_messages",),
        ),
        (
            "p1.jsonl",
            chats.lines(PI, pi("u1", None, "Which hook?"), pi("a1", "u1", "The red hook.")),
            ("red hook",),
            (),
            (),
        ),
        (
            "p2.jsonl",
            chats.lines(
                PI,
                pi("u1", None, "Which hook?"),
                pi("a1", "u1", "The red hook."),
                pi("u2", "a1", "Grease the hook."),
            ),
            ("Grease the hook",),
            ("red",),
            ("copied_messages",),
        ),
    ],
}
