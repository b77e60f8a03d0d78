"""An answer lists cited passages separately from other search hits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kbproc.knowledge.sessions import citations
from tests.kit.talk import Session

REFERENCES = json.dumps(
    [
        {"n": n, "chunk_id": n, "document_id": n, "cite": f"Text {n}", "score": 0.5}
        for n in (1, 2, 3)
    ]
)


def test_what_a_text_cites(subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, list[int]]] = [
        ("Run make [1]. Then wait [3].", [1, 3]),
        ("Run make [1, 3].", [1, 3]),
        ("Run make [1][2].", [1, 2]),
        ("Run make [1–3].", [1, 2, 3]),
        ("Nothing is cited, [9] is no passage.", []),
        ("```py\nx = y[2]\n```\n[1]", [1]),
        ("Use `y[2]` [1] and ```z[3]", [1]),
        ("", []),
    ]
    for text, cited in cases:
        with subtests.test(text=text):
            split = citations.split(text, REFERENCES)
            assert [one.n for one in split.cited] == cited
            assert [one.n for one in split.see_also] == [n for n in (1, 2, 3) if n not in cited]


def test_an_answer_without_references() -> None:
    assert citations.split("I don't know.", None) == ([], [])


def test_an_answer_tells_both(session: Session) -> None:
    session.data("doc.create", title="Git", text="To install git, run make. Git is free.")
    session.data("doc.create", title="Prices", text="Git hosting costs money.")
    answer = session.data("chat", question="How is git installed?")
    assert [one["cite"] for one in answer["references"]] == ["Git"]
    assert [one["cite"] for one in answer["see_also"]] == ["Prices"]
    message = session.data("session.get", session_id=answer["session_id"])["messages"][0]
    assert message["references"] == answer["references"]
    assert message["see_also"] == answer["see_also"]


ROTATE = 'def rotate(key):\n    """Turns a key. Twice."""\n    return key[::-1]'
SOURCES = {
    "prices.csv": ("text", 'region,revenue\nNorth,"1,284,500"\nSouth,12'),
    "app.log": (
        "text",
        "2026-11-03 12:00:01 INFO worker pool started. All well.\n"
        "2026-11-03 12:00:09 ERROR payment gateway timed out. Order 4711 was not charged.",
    ),
    "guide.md": (
        "markdown",
        "# Deploy\n\nDeploying needs a key.\n\n```sh\nship --deploy --canary\nship --watch\n```\n",
    ),
    "page.html": ("html", "<h1>Undo</h1><p>Undo it.</p><pre>ship --rollback\nship --log</pre>"),
    "keys.py": ("code", f"{ROTATE}\n"),
}


def test_a_quote_is_whole(session: Session, tmp_path: Path, subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, str]] = [
        ("What is the revenue of the North?", 'region,revenue\nNorth,"1,284,500" [1]'),
        (
            "Which order did the payment gateway not charge?",
            "2026-11-03 12:00:09 ERROR payment gateway timed out. Order 4711 was not charged. [1]",
        ),
        ("ship deploy canary", "```sh\nship --deploy --canary\nship --watch\n```\n[1]"),
        ("ship rollback log", "```\nship --rollback\nship --log\n```\n[1]"),
        (
            "rotate key twice",
            f"```python\n{ROTATE}\n```\n[1]",
        ),
    ]
    folder = tmp_path / "files"
    folder.mkdir()
    for name, (_, text) in SOURCES.items():
        (folder / name).write_text(text)
    session.data("doc.ingest", paths=[str(folder)])
    for question, quote in cases:
        with subtests.test(question=question, quote=quote):
            answer = session.data("chat", question=question)
            assert quote in answer["text"]
