"""Owners, askers and readers are killed (kill -9) at random moments of answers."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.conftest import OpenSession
from tests.kit import llm
from tests.kit.faults import bytes_of, faults_of, note
from tests.kit.patience import LONG, until
from tests.kit.processes import Client, Crowd, check_answers
from tests.kit.talk import Message

pytestmark = pytest.mark.skipif(not Path("/proc/locks").exists(), reason="needs /proc")

compared = faults_of("asks")

ROUNDS = int(os.environ.get("KBPROC_TEST_ROUNDS", "300" if LONG else "5"))
WORDS = 40  # words of an answer
PROCESSES = 3
MOST_GROWTH = 6000  # bytes of log, from a question until a kill; an answer has fewer
PACE_SECONDS = 0.004  # between two words, so that an answer is many records


def pause(reply: llm.Reply) -> None:
    reply.endpoint.released.wait(PACE_SECONDS)


def text_of(question: str) -> str:
    """The answer to a question. Question marks number it, because a word might spoil its hits."""
    number = question.count("?")
    return "".join(f"{number}.{word} " for word in range(WORDS))


def script(question: str) -> list[llm.Step]:
    words = text_of(question).split()
    return [step for word in words for step in (llm.say(f"{word} "), pause)] + [llm.finish()]


@pytest.fixture
def endpoint() -> Iterator[llm.Endpoint]:
    with llm.endpoint(script) as endpoint:
        yield endpoint


@pytest.fixture
def crowd(tmp_path: Path) -> Iterator[Crowd]:
    with Crowd(tmp_path) as crowd:
        yield crowd


class Stream(NamedTuple):
    """One request whose events tell an answer, and the process that hears them."""

    client: Client
    id: int

    @property
    def told(self) -> list[Message]:
        """Events of the answer in their order, without this stream's own numbers."""
        events = list(self.client.events[self.id])
        return [_bare(event) for event in events if "cursor" in event]

    @property
    def where(self) -> Message | None:
        """Session and message ids, once the init event has arrived."""
        for event in list(self.client.events[self.id]):
            if event["type"] == "init":
                return {name: event[name] for name in ("session_id", "message_id")}
        return None

    def end(self) -> Message:
        answer = self.client.answer(self.id)
        assert "result" in answer, (answer, self.client.told())
        data: Message = answer["result"]["data"]
        return data


def _bare(event: Message) -> Message:
    return {name: value for name, value in event.items() if name not in {"request_id", "index"}}


def answer_text(events: list[Message]) -> str:
    text = ""
    for event in events:
        if event.get("kind") == "restarted":
            text = ""
        text = event["text"] if "text" in event else text + event.get("delta", "")
    return text


class Question:
    """One question with the clients that ask and read it."""

    def __init__(self, crowd: Crowd, number: int, chance: random.Random) -> None:
        self.crowd, self.chance = crowd, chance
        self.params: dict[str, Any] = {"question": "How is git installed by make" + "?" * number}
        if chance.random() < 0.7:
            self.params["client_token"] = f"t{number}"
        self.before = bytes_of(crowd.store / "log")
        self.asker = chance.choice(crowd.living)
        self.streams = [Stream(self.asker, self.asker.start("chat", **self.params))]

    @property
    def where(self) -> Message | None:
        return next((stream.where for stream in self.streams if stream.where), None)

    def read_meanwhile(self) -> None:
        """Makes the other clients read the answer as soon as its ids are known."""
        self.asker.wait_for(lambda: self.where, "init")
        for client in self.crowd.living:
            if client is not self.asker:
                self.resume(client, **({"snapshot": True} if self.chance.random() < 0.4 else {}))

    def resume(self, client: Client, **how: Any) -> Stream:
        assert self.where is not None
        stream = Stream(client, client.start("session.resume", **self.where, **how))
        self.streams.append(stream)
        return stream

    def wait_for_a_moment(self) -> None:
        """Waits for a random moment: before the question is logged, during the answer, or after."""
        enough = self.before + self.chance.randrange(MOST_GROWTH)
        log, ended = self.crowd.store / "log", self.asker.answers
        until(lambda: bytes_of(log) >= enough or ended[self.streams[0].id], "a log that grows")

    # ------------------------------------------------------------------------- after that

    def settle(self, *, owner_died: bool) -> str:
        """Waits for the end of the answer; returns how it ended."""
        stream, living = self.streams[0], self.chance.choice(self.crowd.living)
        if self.asker.alive:
            assert stream.end()["status"] == "finished"
            return "gone on with" if owner_died else "finished"
        if self.where is not None:
            status = self.resume(living).end()["status"]
            assert status == "finished" or (owner_died and status == "interrupted"), status
            if status == "finished" or "client_token" not in self.params:
                return str(status)
        if "client_token" not in self.params:
            return "never heard of"
        again = Stream(living, living.start("chat", **self.params))
        self.streams.append(again)
        assert again.end()["status"] == "finished"
        return "asked again"

    def check(self, *, owner_died: bool) -> None:
        """Checks that each stream's part and its rest equal the whole answer, byte for byte."""
        if self.where is None:
            return
        whole = self.resume(self.chance.choice(self.crowd.living))
        end = whole.end()
        text = text_of(self.params["question"])
        assert end["text"] == answer_text(whole.told)
        assert end["text"] == text if end["status"] == "finished" else text.startswith(end["text"])
        for stream in list(self.streams):
            assert stream.where in (None, self.where)
            self._check_part(stream, whole.told, end)
            if stream.client.alive and stream.end() != end:
                assert owner_died and stream.end()["status"] == "interrupted"

    def _check_part(self, stream: Stream, whole: list[Message], end: Message) -> None:
        events = stream.told
        is_snapshot = bool(events) and "text" in events[0]
        for cut in {len(events), self.chance.randint(0, len(events))} - {0}:
            rest = self.resume(
                self.chance.choice(self.crowd.living), after=events[cut - 1]["cursor"]
            )
            assert rest.end() == end
            if is_snapshot:
                assert answer_text(events[:cut] + rest.told) == end["text"]
            else:
                assert json.dumps(events[:cut] + rest.told) == json.dumps(whole)


def kill_some(crowd: Crowd, question: Question, chance: random.Random) -> bool:
    """Kills some clients; returns whether the owner was among them."""
    owner = crowd.owner()
    dead = chance.choice([[owner], [question.asker], [owner, question.asker], crowd.living])
    for client in dead:
        client.kill()
    for client in dead:
        client.gone()
    return owner in dead


def test_killed_again_and_again(
    crowd: Crowd, endpoint: llm.Endpoint, open_session: OpenSession
) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")  # shown if it fails
    chance = random.Random(seed)
    came: Counter[str] = Counter()
    for number in range(1, ROUNDS + 1):
        while len(crowd.living) < PROCESSES:
            crowd.join(llm=endpoint.url)
        if number == 1:
            crowd.living[0].data("doc.create", title="Git", text="Git is installed by make.")
            crowd.living[0].data("doc.wait")
        question = Question(crowd, number, chance)
        if chance.random() < 0.5:
            question.read_meanwhile()
        question.wait_for_a_moment()
        owner_died = kill_some(crowd, question, chance)
        while len(crowd.living) < PROCESSES:
            crowd.join(llm=endpoint.url)
        came[question.settle(owner_died=owner_died)] += 1
        question.check(owner_died=owner_died)
        for client in crowd.living:
            check_answers(client)
    print(f"{ROUNDS} kills: {dict(came)}")
    for client in crowd.living:
        client.end()
    session = open_session()
    assert session.store.log.verify() == session.store.seq
    with session.store.reading() as snapshot:
        assert snapshot.queries.being_answered() == []
    note(
        "asks",
        "kill -9 of the owner, of who asks, of both or of all, at a random moment of an answer "
        "that others read",
        "every reader resumes to the missing bytes and the same end; who asked and lives is "
        "answered; asked again under its token it goes on in the same message",
    )
