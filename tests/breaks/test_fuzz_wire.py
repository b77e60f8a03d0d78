"""Requests changed at random, over real pipes: each line has its answer, and the next one too.

The corpus is every method's own examples. `mutant(number, id)` makes a line again.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kbproc.base.settings.config import MAX_BATCH, MAX_ID
from kbproc.base.values import MOST_LEVELS, without_halves
from kbproc.methods.all import registry
from kbproc.methods.calls import schemas
from kbproc.methods.calls.checker import lean_schema
from tests.conversations.scripts import make_files
from tests.kit.faults import faults_of, note
from tests.kit.patience import LONG, PATIENCE
from tests.kit.processes import Client, Crowd
from tests.kit.schemas import fit, published
from tests.kit.talk import REPO, Message, assert_log_lines, request

compared = faults_of("fuzz")

SEED = 1
PARTS = 5 if LONG else 1  # each with a store of its own, and processes that live long enough
LINES = 2_000 if LONG else 60  # lines of a part, to each of its two processes
VOLLEY = 20  # lines that are sent before the test waits for answers
PINGED = 100 if LONG else 20  # lines from one ping to the next

METHODS = registry().methods
# Changed at random, an address would lead out of this machine, and a name to a model's library.
LEFT_OUT = {"doc.fetch", "model.use", "model.install"}
CORPUS = [
    (method.name, example.params)
    for method in METHODS.values()
    for example in method.examples
    if method.name not in LEFT_OUT and not str(example.params.get("path")).startswith("nowhere/")
] + [("ping", {"min_seq": 10**9}), ("ping", {"min_seq": 10**9, "timeout_ms": 1})]
# Lines with these words may wait for ever, until they are cancelled.
WAITING = (b"subscribe", b"wait", b"min_seq")

TOKENS = (
    b"\0 \xff \xfe \xc0\x80 \xed\xa0\x80 \xef\xbb\xbf \\u0000 \\ud800 \\udfff\\ud800 \\x { } [ ] "
    b": , - 0 1e999 -1 1e-400 99999999999999999999 null true NaN Infinity {} [] [[ }} \\n \r \t "
    b'"id":1, "id":null, "params":{}, "jsonrpc":"1.0", "method":"ping", "method":5,'
).split(b" ")
STRANGE: list[Any] = [
    *[None, True, False, 0, -1, 1, 0.5, -0.0, 1e308, 2**31, 2**53, 2**63, 2**64, -(2**63) - 1],
    *[
        10**30,
        10**400,
        "",
        " ",
        "\0",
        "a\n",
        "\ud800",
        "\udfff\ud800",
        "\ufffe",
        "\u202e",
        "\u200b",
    ],
    *["a" * MAX_ID, "a" * (MAX_ID + 1), "ä" * 70_000, "default", "1", "*", "../..", "2026-01-01"],
    *[
        [],
        {},
        [[]],
        [None],
        {"": {}},
        {"\ud800": 1},
        ["a"] * 2000,
        {str(n): n for n in range(2000)},
    ],
    *[{"$ref": "#"}, {"__proto__": 1}, [[[[[[[[]]]]]]]]],
]
DEEP = '"deep"'  # stands for what json.dumps could not nest
DEPTHS = (50, 900, 5000, 100_000)


# ------------------------------------------------------------------------- one mutant


def mutant(number: int, id: str) -> bytes:
    """A line without a newline: one of the corpus, changed in one way or another."""
    chance = random.Random(f"{SEED} {number}")
    line = chance.choice(WAYS)(_example(chance, id), chance)
    return line.replace(b"\n", b" ").replace(DEEP.encode(), _deep(chance))


def _example(chance: random.Random, id: str) -> Message:
    method, params = chance.choice(CORPUS)
    message: Message = json.loads(json.dumps(request(id, method, **params)))
    return message


def _deep(chance: random.Random) -> bytes:
    opening, closing = chance.choice([(b"[", b"]"), (b'{"a":', b"}")])
    depth = chance.choice(DEPTHS)
    return opening * depth + b"1" + closing * chance.choice([depth, depth, depth - 1])


def _line(value: Any) -> bytes:
    return json.dumps(value).encode()  # lone surrogates as escapes


def _as_it_is(message: Message, chance: random.Random) -> bytes:
    return _line(message)


def _bytes_changed(message: Message, chance: random.Random) -> bytes:
    line = _line(message)
    for _ in range(chance.choice([1, 1, 2, 5])):
        start = chance.randrange(len(line) + 1)
        end = min(len(line), start + chance.choice([0, 1, 4, 20]))
        piece = line[start:end]
        new = chance.choice(
            [
                b"",
                chance.choice(TOKENS),
                piece + chance.choice(TOKENS),
                piece * 3,
                bytes(byte ^ 1 << chance.randrange(8) for byte in piece),
                chance.randbytes(len(piece)),
            ]
        )
        line = line[:start] + new + line[end:]
    return line


def _cut(message: Message, chance: random.Random) -> bytes:
    line = _line(message)
    return line[: chance.randrange(len(line))]


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yields every container in the value, with each of its keys or indexes."""
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], (dict, list)):
            yield from _places(value[key])


def _retyped(message: Message, chance: random.Random) -> bytes:
    for _ in range(chance.choice([1, 1, 2])):
        container, key = chance.choice(list(_places(message)))
        container[key] = copy.deepcopy(chance.choice([*STRANGE, "deep"]))
    return _line(message)


def _member_more(message: Message, chance: random.Random) -> bytes:
    """Adds a member to the request or its params: one of another method, or an unknown one."""
    place = chance.choice([message, message["params"], message["params"]])
    _, params = chance.choice(CORPUS)
    place[chance.choice([*params, "x", "", "\0", "client_token"])] = chance.choice(STRANGE)
    return _line(message)


def _member_less(message: Message, chance: random.Random) -> bytes:
    container, key = chance.choice(list(_places(message)))
    del container[key]
    return _line(message)


def _doubled(message: Message, chance: random.Random) -> bytes:
    """Repeats a member with another value; the last one counts."""
    name = chance.choice(list(message))
    other = b"%s: %s" % (_line(name), _line(chance.choice(STRANGE)))
    line = _line(message)
    return (
        b"{" + other + b", " + line[1:]
        if chance.random() < 0.5
        else line[:-1] + b"," + other + b"}"
    )


def _other_method(message: Message, chance: random.Random) -> bytes:
    names = [*sorted(METHODS.keys() - LEFT_OUT), "", "pnig", "$/x"]
    return _line(message | {"method": chance.choice(names)})


def _batch(message: Message, chance: random.Random) -> bytes:
    members = [_example(chance, f"{message['id']}-{n}") for n in range(chance.choice([0, 1, 3, 8]))]
    members = [one for one in members if not any(name in _line(one) for name in WAITING)]
    for member in members:
        if chance.random() < 0.3:
            member.pop(chance.choice(list(member)))
    odd = [chance.choice(STRANGE) for _ in range(chance.choice([0, 0, 1, 3, MAX_BATCH]))]
    return _line([*members, *odd])


def _cancel(message: Message, chance: random.Random) -> bytes:
    """Cancels an earlier line, or an id that no request has."""
    params = {"id": chance.choice([*STRANGE, _earlier(message["id"], chance)])}
    named = {} if chance.random() < 0.8 else {"id": message["id"]}
    return _line({"jsonrpc": "2.0", **named, "method": "$/cancel", "params": params})


def _repeated_id(message: Message, chance: random.Random) -> bytes:
    return _line(message | {"id": _earlier(message["id"], chance)})


def _earlier(id: str, chance: random.Random) -> str:
    return str(max(0, int(id) - chance.choice([0, 1, 1, 2, 50])))


WAYS: list[Callable[[Message, random.Random], bytes]] = [
    *[_as_it_is, _bytes_changed, _bytes_changed, _cut, _retyped, _retyped, _retyped, _member_more],
    *[_member_less, _doubled, _other_method, _batch, _cancel, _repeated_id],
]


# --------------------------------------------------------------- what it must be answered


class Head(msgspec.Struct, forbid_unknown_fields=True):
    """A line that is a request, whatever its params hold."""

    id: int | str | msgspec.UnsetType = msgspec.UNSET
    jsonrpc: str = ""
    method: str = ""
    params: msgspec.Raw = msgspec.Raw(b"{}")


def keys(line: bytes) -> list[Any]:
    """Ids under which a line is answered: one or none; the ids of a batch form one tuple."""
    if not line.strip():
        return []
    if levels(line) > MOST_LEVELS:  # no JSON to kbproc, so its id is not read either
        return [None]
    line = without_halves(line)
    if line.lstrip()[:1] == b"[":
        try:
            parts = msgspec.json.decode(line, type=list[msgspec.Raw])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return [None]
        if not parts or len(parts) > MAX_BATCH:
            return [None]
        answered = [key for part in parts for key in _keys_of_one(bytes(part))]
        return [tuple(sorted(map(repr, answered)))] if answered else []
    return _keys_of_one(line)


def levels(line: bytes) -> int:
    """Returns how many lists and objects lie within each other at most, in a line of JSON."""
    level = most = 0
    for part in re.finditer(rb'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]', line):
        level += {b"[": 1, b"{": 1, b"]": -1, b"}": -1}.get(part[0], 0)
        most = max(most, level)
    return most


def _keys_of_one(line: bytes) -> list[Any]:
    value: Any
    try:
        value = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        try:
            head = msgspec.json.decode(line, type=Head)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return [None]
        value = {} if head.id is msgspec.UNSET else {"id": head.id}
        value |= {"jsonrpc": "2.0", "method": head.method, "params": {}}
    if not isinstance(value, dict):
        return [None]
    if "id" in value:
        id = value["id"]
        is_usable = type(id) in (int, str) and not (isinstance(id, str) and len(id) > MAX_ID)
        return [id if is_usable else None]
    params = value.get("params", {})
    is_notification = (
        value.keys() <= {"jsonrpc", "method", "params"}
        and value.get("jsonrpc") == "2.0"
        and isinstance(value.get("method"), str)
        and isinstance(params, (dict, list))
    )
    return [] if is_notification else [None]


# ---------------------------------------------------------------------------- the talk


class Fuzzed:
    """One of the processes: its requests and answers since the last volley."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.answered: Counter[str] = Counter()  # counts "result" and types of errors

    def volley(self, numbers: range) -> None:
        lines = {number: mutant(number, str(number)) for number in numbers}
        try:
            self._exchange(lines)
        except Exception as error:
            error.add_note(f"in the volley of {numbers}: mutant(N, 'N'), seed {SEED}")
            raise

    def _exchange(self, lines: dict[int, bytes]) -> None:
        for line in lines.values():
            self.client.process.send(line)
        for number, line in lines.items():
            if any(name in line for name in WAITING):
                for id in (str(number), *keys(line)):
                    if type(id) in (int, str):
                        self.client.cancel(id)
        expected = Counter(key for line in lines.values() for key in keys(line))
        try:
            self.client.wait_for(lambda: self._heard().total() >= expected.total(), "an answer")
            assert self._heard() == expected
        except AssertionError as error:
            raise AssertionError(self._wrong(lines, expected)) from error
        self._check_all()

    def ping(self, number: int) -> None:
        id = f"ping {number}"
        self.client.send(request(id, "ping"))
        assert self.client.answer(id)["result"]["data"]["seq"] > 0
        self.client.answers.clear()

    def _heard(self) -> Counter[Any]:
        answers = list(self.client.answers.items())  # the reader thread adds to them
        heard = Counter({id: len(got) for id, got in answers if got})
        return heard + Counter(
            tuple(sorted(repr(answer["id"]) for answer in batch)) for batch in self.client.batches
        )

    def _wrong(self, lines: dict[int, bytes], expected: Counter[Any]) -> str:
        """Report with the mutants to send again, and the process's output."""
        heard = self._heard()
        wrong = {key for key in expected | heard if expected[key] != heard[key]}
        report = [
            f"heard but not wanted {heard - expected}, wanted but not heard {expected - heard}"
        ]
        for number, line in lines.items():
            if wrong & {str(number), *keys(line)}:
                report.append(f"mutant({number}, {str(number)!r}), seed {SEED}: {line[:2000]!r}")
        return "\n".join([*report, self.client.told()])

    def _check_all(self) -> None:
        """Checks each message against its schema, then forgets them all."""
        client = self.client
        for answer in [a for got in [*client.answers.values(), *client.batches] for a in got]:
            self._check(answer)
        for event in [event for events in [*client.events.values()] for event in events]:
            fit(event, published()[f"event.{event['type']}"])
        for messages in (client.answers, client.events, client.batches):
            messages.clear()

    def _check(self, answer: Message) -> None:
        if "error" in answer:
            fit(answer["error"], published()["error"])
            type = answer["error"]["data"]["type"]
            assert type != "internal.error", (answer, self.client.told())
        else:
            type, meta = "result", answer["result"]["meta"]
            name = schemas.named_in_meta(meta["schema"])
            schema = published()[name]
            fit(answer["result"], lean_schema(schema) if meta.get("lean") else schema)
        self.answered[type] += 1


def mutants_digest() -> str:
    lines = b"".join(mutant(number, str(number)) for number in range(300))
    return hashlib.sha256(lines).hexdigest()


PROGRAM = """
import os
from tests.breaks.test_fuzz_wire import mutants_digest
print(mutants_digest(), flush=True)
os._exit(0)
"""


def test_a_mutant_can_be_made_again() -> None:
    """Another process makes the same mutants, whatever the order of its sets."""
    here = os.environ.get("PYTHONHASHSEED", "random")
    other = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONHASHSEED": "2" if here == "1" else "1", "PYTHONPATH": str(REPO)},
        check=True,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert other.stdout.strip() == mutants_digest()


@pytest.fixture
def crowd(tmp_path: Path) -> Iterator[Crowd]:
    make_files(tmp_path)
    with Crowd(tmp_path) as crowd:
        yield crowd


def fill(client: Client) -> None:
    """Fills the store with the documents and agents that the examples name."""
    client.data("doc.ingest", paths=["docs/git-admin.md"])
    client.data("kb.create", slug="scratch")
    client.data("doc.create", title="Draft", text="Not finished.", tags=["draft"], kb="scratch")
    for number in range(3):
        client.data("knowledge.store", title=f"The CI {number}", body=f"The CI cache, {number}.")
    client.data("agent.create", slug="gitea")
    client.data("note.put", agent="gitea", slug="gitea-webhooks", text="# Webhooks")


@pytest.mark.parametrize("part", range(PARTS))
def test_requests_changed_at_random(crowd: Crowd, part: int) -> None:
    """The owner and an attached client both answer every line."""
    owner, guest = crowd.join(), crowd.join()
    fill(owner)
    owner.answers.clear()
    both = [Fuzzed(owner), Fuzzed(guest)]
    begin = 2 * LINES * part
    for start in range(begin, begin + LINES, VOLLEY):
        for fuzzed, first in zip(both, (start, LINES + start), strict=True):
            fuzzed.volley(range(first, first + VOLLEY))
            if (start + VOLLEY) % PINGED == 0:
                fuzzed.ping(start)
    for fuzzed in both:
        print(sorted(fuzzed.answered.items()))
        assert fuzzed.answered["result"] > LINES // 10, "most are broken, not all"
        assert fuzzed.answered.total() - fuzzed.answered["result"] > LINES // 3
    for client in (guest, owner):
        assert client.end() == 0, client.told()
        assert_log_lines(client.told())
    note(
        "fuzz",
        "requests changed at random, to the process that has the store open and to one that is "
        "attached: bytes, types, members, depth, ids, batches, cancels",
        "each answered once, by its schema, never internal.error; the next ping too; exit 0",
    )
