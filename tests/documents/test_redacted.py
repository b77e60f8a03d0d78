"""No part of a secret is in a file of a store that redacts: the table of docs/evidence/secrets.md.

The keys are made up; see tests/kit/made_keys.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kbproc.base.text.secrets import redact
from tests.conftest import OpenSession
from tests.kit import chats
from tests.kit.faults import faults_of, note
from tests.kit.made_keys import (
    DIVISIONS,
    PUBLIC,
    MadeKey,
    keys_in_places,
    keys_of_services,
    private_keys_shown,
    traces,
)
from tests.kit.talk import Session

compared = faults_of("secrets", counted=True)


def test_keys_by_service_place_and_program_are_redacted() -> None:
    tables = {
        "a key of {}": keys_of_services(),
        "a secret in {}": keys_in_places(),
        "a private key, {}": private_keys_shown(),
    }
    assert sum(map(len, tables.values())) >= 77 + 35
    failures = []
    for row, keys in tables.items():
        for key in keys:
            redaction = redact(f"Before.\n{key.text}\nAfter.\n")
            is_clean = not traces(key.secret, redaction.text)
            is_final = redact(redaction.text) == (redaction.text, {})
            is_narrow = redaction.text.startswith("Before.\n") and "After." in redaction.text
            if not (is_clean and is_final and is_narrow and len(redaction.counts) == 1):
                failures.append((key.kind, key.text, redaction))
            note("secrets", row.format(key.kind), "redacted")
    assert failures == []


def test_public_values_stay() -> None:
    assert sum(map(len, PUBLIC.values())) >= 35
    touched = []
    for kind, values in PUBLIC.items():
        for value in values:
            text = f"Before.\n{value}\nAfter.\n"
            if redact(text) != (text, {}):
                touched.append(value)
            note("secrets", f"public: {kind}", "stays")
    assert touched == []


# Files of a store, in which each `{}` is a secret that its markup divides.
_FILES: dict[str, Callable[[str], str]] = {
    "a.md": lambda divided: f"# Keys\n\nThe key is {divided} today.\n",
    "b.html": lambda divided: (
        f"<html><body><h1>Keys</h1><p>It is {divided}</p><p>Näch</p></body></html>"
    ),
    "c.txt": lambda divided: f"the key:\n{divided}\n",
    "d.csv": lambda divided: f"name,value\ncrane,{divided}\n",
    "e.log": lambda divided: f"12:01 INFO call with {divided}\n",
}
_SERVICES = ("GitHub", "Tavily", "Airtable", "Stripe")


def _divided_keys() -> list[tuple[str, MadeKey, str]]:
    """Returns (division, key, divided text) for some services and every division."""
    keys = {key.kind: key for key in keys_of_services()}
    return [
        (division, keys[kind], divide(keys[kind].text))
        for division, divide in DIVISIONS.items()
        for kind in _SERVICES
    ]


def test_divided_secrets_are_in_no_file_of_a_store(
    open_session: OpenSession, tmp_path: Path
) -> None:
    """300 forms and more: services, divisions, and the files in which they stand."""
    session = open_session()
    session.library.intake.redact = True
    folder = tmp_path / "docs"
    keys = _divided_keys()
    for number, (division, _, divided) in enumerate(keys):
        (folder / str(number)).mkdir(parents=True)
        for name, form in _FILES.items():
            (folder / str(number) / name).write_text(form(divided))
            note("secrets", f"divided by {division}", "redacted")
    assert len(keys) * len(_FILES) >= 300
    answer = session.data("doc.ingest", paths=["docs"])
    assert answer["failures"] == []
    assert answer["added"] == len(keys) * len(_FILES)
    assert sum(answer["unread"][kind] for kind in answer["unread"] if "redacted" in kind) >= 300
    _assert_no_traces(session, tmp_path, [key for _, key, _ in keys])


def test_secrets_in_conversations_are_in_no_file_of_a_store(
    session: Session, tmp_path: Path
) -> None:
    keys = [*keys_of_services(), *keys_in_places(), *private_keys_shown()]
    texts = [key.text for key in keys] + [divided for _, _, divided in _divided_keys()]
    head = {"kbproc": "conversation", "version": 1, "id": "1", "client": "pi", "title": "Keys"}
    roles = ("user", "assistant", "call", "result")
    messages = [
        {"turn": 1, "role": roles[number % 4], "at": None, "name": "Read", "text": f"It:\n{text}"}
        for number, text in enumerate(texts)
    ]
    (tmp_path / "keys.jsonl").write_bytes(chats.lines(head, *messages))
    assert session.data("doc.ingest", paths=["keys.jsonl"])["added"] == 1
    _assert_no_traces(session, tmp_path, keys)


def _assert_no_traces(session: Session, tmp_path: Path, keys: list[MadeKey]) -> None:
    """Asserts that no file of the store has a part of a key, and that it would be seen in one."""
    secrets = {key.kind: key.secret for key in keys}
    whole = _bytes_of(session)
    assert "[redacted: " in whole
    assert {kind: leak for kind, secret in secrets.items() if (leak := traces(secret, whole))} == {}
    session.library.intake.redact = False
    (tmp_path / "leak.txt").write_text(f"The key is {keys[0].secret}.\n")
    assert session.data("doc.ingest", paths=["leak.txt"])["added"] == 1
    assert traces(keys[0].secret, _bytes_of(session))


def _bytes_of(session: Session) -> str:
    """Returns the bytes of all the store's files."""
    return "\n".join(
        path.read_bytes().decode("latin-1")
        for path in session.store.folder.rglob("*")
        if path.is_file()
    )


FRONT = '---\ntitle: "Keys \\u0067hp_{}"\ntags: [a]\n---\n\nThe key.\n'
TOKEN = "8sKq2mVn4Tz7Rw1Yb6Xc3Dp9Lf5Gh0Jk2Ma1"


def test_what_only_a_parser_joins_goes_from_text_and_source(
    open_session: OpenSession, tmp_path: Path
) -> None:
    """A title of front matter, and a value that an element divides from its name."""
    session = open_session()
    session.library.intake.redact = True
    (tmp_path / "a.md").write_text(FRONT.format(TOKEN))
    name = f"password<i title='{'a ' * 700}'>:</i>"
    (tmp_path / "b.html").write_text(f"<p>{name} Kr4nHook9!</p><p>Again Kr4nHook9!</p>")
    (tmp_path / "c.json").write_text(f'{{"login": "gh\\u0070_{TOKEN}"}}')
    answer = session.data("doc.ingest", paths=["a.md", "b.html", "c.json"])
    assert answer["failures"] == []
    assert answer["unread"] == {"redacted_github_token": 2, "redacted_password": 2}
    whole = b"".join(p.read_bytes() for p in session.store.folder.rglob("*") if p.is_file())
    for part in (TOKEN[:8], TOKEN[-8:], "Kr4nHook9"):
        assert part.encode() not in whole


def test_a_source_whose_places_cannot_be_told_is_refused(
    open_session: OpenSession, tmp_path: Path
) -> None:
    session = open_session()
    session.library.intake.redact = True
    (tmp_path / "a.html").write_text(f"<p>It is gh<i title='{'a ' * 700}'>p</i>_{TOKEN}.</p>")
    cell = {"cell_type": "code", "source": [], "outputs": [], "metadata": {"note": f"ghp_{TOKEN}"}}
    text = {"cell_type": "markdown", "source": ["Cranes."], "metadata": {}}
    notebook = {"cells": [text, cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    (tmp_path / "b.ipynb").write_text(json.dumps(notebook))
    answer = session.ask("doc.ingest", paths=["a.html", "b.ipynb"])
    assert "holds secrets (1 redacted GitHub token)" in json.dumps(answer)
    assert session.data("doc.list") == []
    whole = b"".join(p.read_bytes() for p in session.store.folder.rglob("*") if p.is_file())
    assert TOKEN[:8].encode() not in whole


@pytest.mark.parametrize("charset", ["iso-8859-1", "shift_jis"])
def test_a_redacted_page_keeps_its_letters(
    open_session: OpenSession, tmp_path: Path, charset: str
) -> None:
    session = open_session()
    session.library.intake.redact = True
    word = {"iso-8859-1": "Zürich", "shift_jis": "起重機"}[charset]
    page = f"<meta charset={charset}><p>{word} has the key ghp_{TOKEN}.</p>"
    (tmp_path / "a.html").write_bytes(page.encode(charset))
    session.data("doc.ingest", paths=["a.html"])
    text = session.data("doc.get", id=1, text=True)["text"]
    assert f"{word} has the key [redacted: GitHub token]" in text
