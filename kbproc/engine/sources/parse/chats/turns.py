"""The one shape of a conversation that every client's reader makes, as a value and as JSON Lines.

The JSON Lines are what a store keeps of a conversation, and what an export writes: a line for the
conversation, then a line for each message. Secrets are taken out of every text on its way in, long
tool output is cut to its head and tail, and pictures are left out, so that none of these is ever
in a store.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import msgspec
from msgspec import Struct, field

from kbproc.base import times
from kbproc.base.hashes import blake2b
from kbproc.base.text.secrets import redact
from kbproc.engine.events.origin import AGENT, PERSON, TOOL, WEB, Origin
from kbproc.engine.sources.parse import json_values
from kbproc.engine.sources.parse.blocks import clean_text, clean_title

Json: TypeAlias = dict[str, Any]
# The speakers; a call is what a model asks of a tool, and a result is the tool's output.
Role = Literal["user", "assistant", "call", "result"]
ROLES: tuple[Role, ...] = get_args(Role)

SHAPE_VERSION = 1
# True while a log is read whole, because nothing of it is stored.
WHOLE: ContextVar[bool] = ContextVar("whole", default=False)
HEAD_CHARS, TAIL_CHARS = 1200, 400
# A segment of a long session has so many characters and those up to the next border: some 150
# chunks, which a line that is added to the session costs anew.
SEGMENT_CHARS = 100_000
_NOTE_CHARS = 100  # so that a text that was cut is not cut again
_ARGUMENT_CHARS = 600
_TITLE_CHARS = 80
# Characters without a break that no person writes: base64 and other encoded data.
_ENCODED = re.compile(r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{800,}={0,2}")


# Tools that read the web, by their names, and commands of a shell that do.
_WEB_TOOL = re.compile(r"web|fetch|brows|https?|navigate|crawl|scrap", re.IGNORECASE)
_WEB_COMMAND = re.compile(r"\b(?:curl|wget|lynx|w3m|httpie?|requests|urllib)\b|https?://")


class ChatMessage(Struct, kw_only=True):
    """A message. `turn` counts from 1. `name`: a speaker's name, or that of a tool."""

    turn: int = 0
    role: Role
    at: str | None = None
    name: str | None = None
    text: str


# Digests of texts without a secret. A log that grows is read again and again, and looking for
# secrets takes most of the time.
_clean: set[bytes] = set()
_MOST_CLEAN = 200_000


class _Border(NamedTuple):
    """The model of a transcript and its counts of unread parts before a message."""

    model: str | None
    unread: Counter[str]


class ChatTranscript(Struct, kw_only=True):
    """A conversation without its secrets. `unread`: its parts that are left out, by kind."""

    client: str
    id: str = ""
    title: str = ""
    project: str | None = None
    model: str | None = None
    messages: list[ChatMessage] = []
    unread: Counter[str] = field(default_factory=Counter)
    # Place of a message with which a segment may begin → the state of the transcript before it.
    borders: dict[int, _Border] = {}

    @property
    def origin(self) -> Origin:
        """Returns the least trusted of the speakers; what a tool read on the web is of the web."""
        replies = [message for message in self.messages if message.role != "user"]
        if any(_reads_web(message) for message in replies):
            return WEB
        if any(message.role == "result" for message in replies):
            return TOOL
        return AGENT if replies else PERSON

    def add(
        self,
        role: Role,
        text: str,
        *,
        at: object = None,
        name: str | None = None,
        turn: int = 0,
    ) -> None:
        """Adds a message without its secrets; a blank text adds none."""
        if not text.strip():
            return
        if role in ("user", "assistant"):
            self.borders[len(self.messages)] = _Border(self.model, Counter(self.unread))
        text = clean_text(text).strip()
        if role in ("call", "result"):
            text, encoded = _ENCODED.subn("[…]", text)
            self.unread["embedded_files"] += encoded
        text = self.redacted(text)
        is_long = len(text) > HEAD_CHARS + TAIL_CHARS + _NOTE_CHARS
        if role in ("call", "result") and is_long and not WHOLE.get():
            self.unread["cut_outputs"] += 1
            text = _cut(text)
        name = clean_title(self.redacted(name)) if name else None
        self.messages.append(ChatMessage(role=role, at=moment(at), name=name, text=text, turn=turn))

    def take_back(self, turns: int) -> None:
        """Takes the last questions back with what follows them, and counts the messages."""
        questions = [place for place, each in enumerate(self.messages) if each.role == "user"]
        if not questions or turns < 1:
            return
        start = questions[-min(turns, len(questions))]
        self.unread["other_branches"] += len(self.messages) - start
        del self.messages[start:]
        self.borders = {place: each for place, each in self.borders.items() if place < start}

    def redacted(self, text: str) -> str:
        """Returns a text without its secrets, and counts them.

        A text is cut after that, because a part of a secret has no shape that tells it.
        """
        key = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        if key in _clean:
            return text
        redacted = redact(text)
        self.unread.update(redacted.counts)
        if not redacted.counts:
            if len(_clean) >= _MOST_CLEAN:
                _clean.clear()
            _clean.add(key)
        return redacted.text

    def call(self, name: str, arguments: object, *, at: object = None) -> None:
        """Adds what a model asks of a tool."""
        self.add("call", self._arguments(arguments), at=at, name=name)

    def _arguments(self, value: object) -> str:
        """Returns a tool's arguments as lines; a single one without its name."""
        texts = _arguments(value)
        if isinstance(texts, str):
            return texts
        if len(texts) == 1:
            return next(iter(texts.values()))
        return "\n".join(
            f"{name}: {_shortened(self.redacted(text))}" for name, text in texts.items()
        )

    def say(
        self, role: Role, content: object, *, at: object = None, name: str | None = None
    ) -> None:
        """Adds the texts of a message's content, and counts its pictures and thoughts."""
        self.add(role, self.text_of(content), at=at, name=name)

    def file_name(self, name: str, mime: str) -> str:
        """Returns the name of a file that a message brings, in brackets, and counts the file."""
        self.unread["pictures" if is_picture(mime) else "attachments"] += 1
        return in_brackets(name, mime)

    def text_of(self, content: object) -> str:
        """Returns the texts of a content: a string, or a list of parts."""
        if isinstance(content, str):
            return content
        if isinstance(content, dict):
            content = [content]
        if not isinstance(content, list):
            return ""
        return "\n\n".join(text for part in content if (text := self._text_of_part(part)))

    def _text_of_part(self, part: object) -> str:
        if isinstance(part, str):
            return part
        if not isinstance(part, dict):
            return ""
        kind = str(part.get("type", ""))
        if "image" in kind or "inlineData" in part:
            self.unread["pictures"] += 1
            return ""
        if kind in ("thinking", "reasoning", "redacted_thinking"):
            self.unread["thoughts"] += 1
            return ""
        if kind in ("document", "file", "input_file", "audio"):
            self.unread["attachments"] += 1
            return ""
        text = part.get("text")
        return text if isinstance(text, str) else ""


def is_picture(mime: str) -> bool:
    return mime.startswith("image")


def in_brackets(name: str, mime: str) -> str:
    """Returns the name of a file, as it stands in a message; "" for one without a name."""
    return f"[{'picture' if is_picture(mime) else 'file'}: {name}]" if name else ""


def _reads_web(message: ChatMessage) -> bool:
    if message.role not in ("call", "result"):
        return False
    is_web_tool = message.name is not None and _WEB_TOOL.search(message.name) is not None
    return is_web_tool or (message.role == "call" and bool(_WEB_COMMAND.search(message.text)))


def finished(conversation: ChatTranscript, earlier: Collection[str] = ()) -> ChatTranscript | None:
    """Returns the conversation with its turns numbered and its title; None without any message.

    `earlier`: keys of messages that are left out, because another log holds them.
    """
    if not all(message.turn for message in conversation.messages):
        _number(conversation.messages)
    if earlier:
        _leave_out(conversation, frozenset(earlier))
    if not conversation.messages:
        return None
    conversation.id = clean_title(conversation.redacted(conversation.id)) or ""
    for name in ("project", "model"):
        value = getattr(conversation, name)
        setattr(conversation, name, clean_title(conversation.redacted(value)) if value else None)
    title = clean_title(conversation.redacted(conversation.title))
    conversation.title = title or _first_words(conversation.messages)
    conversation.unread = Counter({kind: n for kind, n in conversation.unread.items() if n})
    return conversation


def message_keys(talk: ChatTranscript) -> list[str]:
    """Returns the keys of the messages that have a time."""
    return [key for message in talk.messages if (key := _key_of(talk, message))]


def _key_of(talk: ChatTranscript, message: ChatMessage) -> str | None:
    at = message.at
    return message_key(talk.client, at, message.role, message.text) if at else None


def message_key(client: str, at: str, role: str, text: str) -> str:
    """Returns the client and the time of a message, and a digest of its speaker and words."""
    return f"{client} {at} {blake2b(f'{role} {text}'.encode(), digest_size=12).hexdigest()}"


def _leave_out(talk: ChatTranscript, earlier: frozenset[str]) -> None:
    """Takes the messages with these keys out of a conversation, and counts them.

    What was left out before the first of the others was counted with the other log.
    """
    places = [
        place
        for place, message in enumerate(talk.messages)
        if _key_of(talk, message) not in earlier
    ]
    copied_count = len(talk.messages) - len(places)
    before = talk.borders.get(places[0]) if places else None
    unread = before.unread if before else Counter[str]()
    borders = {}
    for place, old_place in enumerate(places):
        if border := talk.borders.get(old_place):
            counts = border.unread - unread
            counts["copied_messages"] += copied_count
            borders[place] = border._replace(unread=counts)
    talk.messages = [talk.messages[place] for place in places]
    talk.borders = borders
    talk.unread -= unread
    talk.unread["copied_messages"] += copied_count


def segments(talk: ChatTranscript) -> list[ChatTranscript]:
    """Returns a long session in segments, which begin with words of a person or a model.

    A segment depends on nothing after it, so that a session that grows changes only its last one.
    """
    starts, size = [0], 0
    for place, message in enumerate(talk.messages):
        if size >= SEGMENT_CHARS and place in talk.borders:
            starts.append(place)
            size = 0
        size += len(message.text)
    ends = [*starts[1:], len(talk.messages)]
    return [_segment(talk, *span) for span in zip(starts, ends, strict=True)]


def _segment(talk: ChatTranscript, start: int, end: int) -> ChatTranscript:
    """Returns the messages from `start` to before `end`, and what was left out among them."""
    last = _Border(talk.model, talk.unread)
    model, unread = talk.borders[end] if end < len(talk.messages) else last
    before = talk.borders[start].unread if start else Counter[str]()
    return ChatTranscript(
        client=talk.client,
        id=talk.id,
        title=talk.title,
        project=talk.project,
        model=model,
        messages=talk.messages[start:end],
        unread=unread - before,
    )


def _number(messages: list[ChatMessage]) -> None:
    """Numbers the turns: a turn is a question and all that follows until the next question."""
    turn, last = 0, "assistant"
    for message in messages:
        if message.role == "user" and last != "user":
            turn += 1
        message.turn = max(turn, 1)
        last = message.role


def _first_words(messages: list[ChatMessage]) -> str:
    """Returns the first line that a user wrote, shortened."""
    first = next((each for each in messages if each.role == "user"), messages[0])
    line = clean_title(first.text[:1000].strip().partition("\n")[0]) or "conversation"
    if len(line) <= _TITLE_CHARS:
        return line
    return line[:_TITLE_CHARS].rsplit(" ", 1)[0] + "…"


def _cut(text: str) -> str:
    """Returns the head and the tail of a text, cut at the ends of lines where those are near."""
    head, tail = text[:HEAD_CHARS], text[-TAIL_CHARS:]
    head = head[: head.rfind("\n")] if head.rfind("\n") > HEAD_CHARS // 2 else head
    start = tail.find("\n") + 1
    tail = tail[start:] if 0 < start < TAIL_CHARS // 2 else tail
    return f"{head}\n[… {len(text) - len(head) - len(tail):,} characters left out …]\n{tail}"


def _arguments(value: object) -> str | dict[str, str]:
    """Returns a tool's arguments by name as texts, or as one text where they have no names."""
    if isinstance(value, str):
        try:
            decoded = json_values.decode(value)
        except (msgspec.DecodeError, RecursionError):
            return value
        value = decoded if isinstance(decoded, dict) else value
    if not isinstance(value, dict):
        return value if isinstance(value, str) else "" if value is None else _encoded(value)
    return {
        str(name): each if isinstance(each, str) else _encoded(each) for name, each in value.items()
    }


def _encoded(value: object) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except RecursionError:
        return ""


def _shortened(text: str) -> str:
    return text if len(text) <= _ARGUMENT_CHARS else f"{text[:_ARGUMENT_CHARS]} […]"


def moment(value: object) -> str | None:
    """Returns a time as RFC 3339 in UTC; `value` is such a text, or seconds or milliseconds."""
    try:
        if isinstance(value, str) and not re.fullmatch(r"\d+(?:\.\d+)?", value):
            when = times.parsed(value)
            when = when.replace(tzinfo=UTC) if when.tzinfo is None else when.astimezone(UTC)
        elif isinstance(value, str | int | float) and not isinstance(value, bool):
            number = float(value)
            when = datetime.fromtimestamp(number / 1000 if number > 1e11 else number, UTC)
        else:
            return None
    except (ValueError, OverflowError, OSError):
        return None
    return when.strftime("%Y-%m-%dT%H:%M:%SZ") if when.year > 1970 else None


# ------------------------------------------------------------------ JSON and JSON Lines


def json_lines(data: bytes, unread: Counter[str]) -> Iterator[Json]:
    """Yields the objects of JSON Lines; a line that is none is counted.

    A last line without its end is not counted, because its client is still writing it.
    """
    whole, newline, last = data.removeprefix(b"\xef\xbb\xbf").rpartition(b"\n")
    for line in whole.split(b"\n") if newline else []:
        record = _object(line)
        if record is not None:
            yield record
        elif line.strip():
            unread["damaged_lines"] += 1
    if (record := _object(last)) is not None:
        yield record


def _object(line: bytes) -> Json | None:
    try:
        record = json_values.decode(line) if line.strip() else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def records_of(data: bytes) -> list[Json]:
    """Returns the conversations of an export, which is a list of them, or one.

    Raises msgspec.DecodeError for other JSON.
    """
    decoded = json_values.decode(data)
    records = [decoded] if isinstance(decoded, dict) else decoded
    if not isinstance(records, list) or not all(isinstance(each, dict) for each in records):
        raise msgspec.ValidationError("the file is neither a conversation nor a list of some")
    return records


def objects_of(data: bytes) -> list[Json]:
    """Returns the objects of a file that holds a list of them. Raises msgspec.DecodeError."""
    return msgspec.convert(json_values.decode(data), list[dict[str, Any]])


def object_of(data: bytes) -> Json:
    """Returns the object of a file that holds one. Raises msgspec.DecodeError."""
    return msgspec.convert(json_values.decode(data), dict[str, Any])


def members(value: object, *names: str) -> Json:
    """Returns the object that lies below these names; {} if there is none."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def objects(value: object) -> list[Json]:
    """Returns the objects of a list; [] for what is no list."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def word(record: Json, *names: str) -> str:
    """Returns the first of these members that is a text and not empty, or ""."""
    values = (record.get(name) for name in names)
    return next((value for value in values if isinstance(value, str) and value), "")


# ----------------------------------------------------------------------- the stored shape


def encoded(conversation: ChatTranscript) -> bytes:
    """Returns a conversation as JSON Lines: a line for itself, then one for each message."""
    head = {
        "kbproc": "conversation",
        "version": SHAPE_VERSION,
        "id": conversation.id,
        "client": conversation.client,
        "title": conversation.title,
        "project": conversation.project,
        "model": conversation.model,
        "unread": dict(conversation.unread),
    }
    encode = msgspec.json.encode
    return b"".join(line + b"\n" for line in (encode(head), *map(encode, conversation.messages)))
