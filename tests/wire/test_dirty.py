"""Dirty input from public collections: each gets a typed answer, and so does the next line.

KBPROC_TEST_DATA names a folder with dirty/json (the files of JSONTestSuite) and
dirty/naughty-strings (blns.json); without it only the short lists here run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbproc.methods.calls import schemas
from tests.kit.schemas import fit
from tests.kit.talk import Message, Session, as_bytes, request

DATA = os.environ.get("KBPROC_TEST_DATA")
DIRTY = Path(DATA or "/nonexistent") / "dirty"
needs_data = pytest.mark.skipif(not DIRTY.is_dir(), reason="KBPROC_TEST_DATA names no such folder")
ERROR = schemas.error_schema()

STRINGS = [
    "",
    " ",
    "\t",
    "null",
    "undefined",
    "NaN",
    "-1",
    "1e999",
    "0x0",
    "\\",
    '"',
    "'",
    "`",
    "\0",
    "a\0b",
    "\n",
    "\r\n",
    "\x1b[31m",
    "\x7f",
    "\u0085",
    "\u00a0",
    "\u200b",
    "\u202e",
    "\ufeff",
    "\ufffe",
    "\uffff",
    "\U0010ffff",
    "é",
    "e\u0301",
    "ﬁ",
    "İ",
    "ß",
    "ﷺ",
    "𝒳",
    "田中さん",
    "مرحبا",
    "Z̮̞̠͙͔ͅḀ̗̞͈̻̗Ḷ͙͎̯̹̞͓G̻O̭̗̮",
    "'; DROP TABLE documents; --",
    "1' OR '1'='1",
    "%s%n%d",
    "{}",
    "${HOME}",
    "{{7*7}}",
    "../../etc/passwd",
    "file:///etc/passwd",
    "<script>alert(1)</script>",
    "$(reboot)",
    "title:x AND (",
    "a AND OR NOT",
    "* OR ?",
    "~~~",
    '"unbalanced',
    "-",
    "--",
    "- -",
    '-"',
    '""',
    '"" ""',
    '-"a b"',
    "a" * 2000,
    "ä" * 2000,
    "a " * 1000,
    "-a " * 600,
    '"a" ' * 500,
]
LINES = [
    b"",
    b"\0",
    b"\xff\xfe",
    b"\xef\xbb\xbf{}",
    b"{",
    b"[",
    b"]",
    b"[1,]",
    b"{,}",
    b"[[]",
    b"nul",
    b"+1",
    b"01",
    b"1.",
    b".5",
    b"1e",
    b"'a'",
    b'"',
    b'"\\x00"',
    b'"\\uD800"',
    b'"\\uDFFF\\uD800"',
    b'{"a":1,"a":2}',
    b"/**/{}",
    b"{}//",
    b"\x0b{}",
    b"\xc2\xa0{}",
    b"[NaN]",
    b"[Infinity]",
    b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}',
    b'{"jsonrpc":"2.0","method":"ping",}',
]


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    folder = tmp_path_factory.mktemp("dirty")
    session = Session(folder / "store", cwd=folder)
    session.receive(), session.receive()
    session.data("doc.create", title="Something", text="Something to find and to rename.")
    session.embedded()
    yield session
    session.close()


def naughty_strings() -> list[str]:
    strings: list[str] = json.loads((DIRTY / "naughty-strings" / "blns.json").read_bytes())
    return strings


def dirty_lines() -> Iterator[bytes]:
    """Yields the lines of every file; a file with newlines is several lines."""
    for path in sorted((DIRTY / "json").rglob("*.json")):
        yield from path.read_bytes().split(b"\n")


def answers_to(session: Session, lines: list[bytes]) -> list[Message]:
    """Sends every line, and a ping after them; returns the answers."""
    for line in lines:
        session.send(line)
        session.idle()
    answers = [json.loads(line) for line in session.outbox.rest()]
    assert session.data("ping")["seq"] > 0
    return [part for answer in answers for part in (answer if type(answer) is list else [answer])]


def check_errors(answers: list[Message]) -> None:
    for answer in answers:
        assert ("error" in answer) != ("result" in answer)
        if "error" in answer:
            fit(answer["error"], ERROR)
            assert answer["error"]["data"]["type"] != "internal.error", answer


def check_lines(session: Session, lines: list[bytes]) -> None:
    answers = answers_to(session, lines)
    check_errors(answers)
    assert len(answers) >= sum(bool(line.strip()) for line in lines)


def check_string(session: Session, text: str, *, dry_run: bool = False) -> None:
    """Sends a text as query, title and tag; a stored text must come back unchanged."""
    batch = [
        request(0, "search", query=text, limit=1),
        request(1, "doc.update", id=1, title=text, dry_run=dry_run),
        request(2, "doc.update", id=1, tags=[text], dry_run=dry_run),
    ]
    answer, titled, tagged = answers_to(session, [as_bytes(batch)])
    check_errors([answer, titled, tagged])
    assert "result" in answer or answer["error"]["data"]["field"] == "$.params.query"
    if "result" in titled and not dry_run:
        assert titled["result"]["data"]["title"] == text.strip()
    elif "error" in titled:
        assert titled["error"]["data"]["field"] == "$.params.title"
    if "result" in tagged and not dry_run:
        assert session.ask("doc.list", tags=[text])["result"]["meta"]["count"] == 1
    elif "error" in tagged:
        assert tagged["error"]["data"]["field"] == "$.params.tags[0]"


def test_own_lines(session: Session) -> None:
    check_lines(session, LINES)


def test_own_strings(session: Session, subtests: pytest.Subtests) -> None:
    for text in STRINGS:
        with subtests.test(ascii(text)[:20]):
            check_string(session, text)


@needs_data
def test_dirty_json(session: Session) -> None:
    check_lines(session, list(dirty_lines()))


@needs_data
def test_naughty_strings(session: Session) -> None:
    for text in naughty_strings():
        check_string(session, text, dry_run=True)  # a write costs an fsync
