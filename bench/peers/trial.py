"""A peer on trial: a process that reads commands as lines and answers their seconds.

It runs in a peer's own environment, which has numpy and nothing of kbproc's. The
clock runs around each call; runners/ has the peers.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

LIMIT = 10  # hits of every search


class Document(NamedTuple):
    """A text with its `vector`: 384 floats in 32 bits, of length 1."""

    number: int
    title: str
    text: str
    vector: Any


class Given:
    """The corpus, read from a folder when first needed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def documents(self, first: int, last: int) -> list[Document]:
        import numpy as np

        vectors = np.load(self.folder / "vectors.npy", mmap_mode="r")
        batch = []
        with (self.folder / "documents.ndjson").open(encoding="utf-8") as lines:
            for number, line in enumerate(lines):
                if number >= last:
                    break
                if number >= first:
                    row = json.loads(line)
                    vector = np.array(vectors[number])
                    batch.append(Document(number, row["title"], row["text"], vector))
        return batch

    def questions(self) -> list[str]:
        queries: list[str] = json.loads((self.folder / "queries.json").read_text(encoding="utf-8"))
        return queries

    def question_vectors(self) -> Any:
        import numpy as np

        return np.load(self.folder / "query_vectors.npy")


class Peer:
    """The interface of every peer. `folder`, which may be empty, holds its store.

    Searches answer with the documents' numbers, best first. A channel that a peer does not offer
    is not in `channels`. `called` describes the calls per figure, `lacks` the missing features.
    """

    name: ClassVar[str]
    channels: ClassVar[Sequence[str]] = ("keyword", "vector", "hybrid")
    called: ClassVar[dict[str, str]]
    lacks: ClassVar[str] = ""
    words_only = False  # no vectors are kept

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.folder.mkdir(parents=True, exist_ok=True)

    def versions(self) -> dict[str, str]:
        raise NotImplementedError

    def open(self) -> None:
        raise NotImplementedError

    def load(self, documents: list[Document]) -> None:
        """Returns when searches find all of them."""
        raise NotImplementedError

    def insert(self, document: Document) -> None:
        """Returns when the peer reports the write."""
        raise NotImplementedError

    def insert_many(self, documents: list[Document]) -> None:
        """Inserts without waiting for each answer, if a peer offers that."""
        raise NotImplementedError

    def settle(self) -> None:
        """Does the upkeep that its users do after many single writes, if any."""

    def keyword(self, query: str) -> list[int]:
        raise NotImplementedError

    def vector(self, query: str, vector: Any) -> list[int]:
        raise NotImplementedError

    def hybrid(self, query: str, vector: Any) -> list[int]:
        raise NotImplementedError

    def close(self) -> None:
        """Closes the peer as its users do."""

    def pid(self) -> int:
        """Returns the pid of the process that holds the store."""
        return os.getpid()


class Trial:
    """One process of one peer."""

    def __init__(self, peer: Peer, inputs: Given) -> None:
        self._peer = peer
        self._given = inputs
        self._documents: dict[int, Document] = {}
        self._questions = inputs.questions()
        self._vectors: Any = None

    def open(self) -> dict[str, Any]:
        seconds = _timed(self._peer.open)
        return {
            "seconds": seconds,
            "pid": self._peer.pid(),
            "name": self._peer.name,
            "versions": self._peer.versions(),
            "channels": list(self._peer.channels),
            "called": self._peer.called,
            "lacks": self._peer.lacks,
        }

    def read(self, first: int, last: int) -> dict[str, Any]:
        """Reads the documents outside the peer's time."""
        self._documents = {d.number: d for d in self._given.documents(first, last)}
        return {"documents": len(self._documents)}

    def load(self) -> dict[str, Any]:
        documents = list(self._documents.values())
        return {"seconds": _timed(lambda: self._peer.load(documents))}

    def insert(self, first: int, last: int) -> dict[str, Any]:
        insert, documents = self._peer.insert, self._documents
        return {"seconds": _timed(lambda: [insert(documents[n]) for n in range(first, last)])}

    def insert_many(self) -> dict[str, Any]:
        documents = list(self._documents.values())
        return {"seconds": _timed(lambda: self._peer.insert_many(documents))}

    def settle(self) -> dict[str, Any]:
        return {"seconds": _timed(self._peer.settle)}

    def ask(self, channel: str, first: int, last: int) -> dict[str, Any]:
        times, answers = [], []
        for number in range(first, last):
            search = self._search(channel, number)
            started = time.perf_counter()
            numbers = search()
            times.append(time.perf_counter() - started)
            answers.append([int(n) for n in numbers])
        return {"seconds": times, "found": answers}

    def _search(self, channel: str, number: int) -> Callable[[], list[int]]:
        query, peer = self._questions[number], self._peer
        if channel == "keyword":
            return lambda: peer.keyword(query)
        if self._vectors is None:
            self._vectors = self._given.question_vectors()
        vector = self._vectors[number]
        return lambda: getattr(peer, channel)(query, vector)  # type: ignore[no-any-return]

    def close(self) -> dict[str, Any]:
        return {"seconds": _timed(self._peer.close)}


def best_channel(peer: type[Peer] | Peer) -> str:
    return peer.channels[-1]


def _timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _claimed() -> Any:
    """Returns the pipe to the driver, and sends the libraries' prints to stderr."""
    wire = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return wire


def _commands() -> Iterator[dict[str, Any]]:
    for line in sys.stdin:
        yield json.loads(line)


def main(kind: Callable[[Path], Peer]) -> None:
    """`FOLDER GIVEN [--words] [--first]`: serves commands, or answers one question and ends."""
    wire, folder, inputs = _claimed(), Path(sys.argv[1]), Given(Path(sys.argv[2]))
    peer = kind(folder)
    peer.words_only = "--words" in sys.argv
    trial = Trial(peer, inputs)
    if "--first" in sys.argv:
        started = time.perf_counter()
        trial.open()
        answers = trial.ask(best_channel(peer), 0, 1)["found"]
        # If another process holds the store, its start counts, not this one's.
        own = None if peer.pid() == os.getpid() else time.perf_counter() - started
        _say(wire, {"seconds": own, "found": answers})
        peer.close()
        return
    for command in _commands():
        name = command.pop("do")
        _say(wire, getattr(trial, name)(**command))
        if name == "close":
            break


def _say(wire: Any, answer: dict[str, Any]) -> None:
    with contextlib.suppress(BrokenPipeError):
        wire.write(json.dumps(answer) + "\n")
        wire.flush()
