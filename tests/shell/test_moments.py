"""Moments in a person's words."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kbproc.surfaces.shell.moments import moment
from tests.kit.shell import Run, in_process, refused


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    return in_process(tmp_path, monkeypatch, capsys)


@pytest.fixture(autouse=True)
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("now", "2026-03-31T10:15:30Z"),
        ("today", "2026-03-30T22:00:00Z"),
        ("yesterday", "2026-03-29T22:00:00Z"),
        ("tomorrow 9:30", "2026-04-01T07:30:00Z"),
        ("14:00", "2026-03-31T12:00:00Z"),
        ("2 hours ago", "2026-03-31T08:15:30Z"),
        ("an hour ago", "2026-03-31T09:15:30Z"),
        ("in 2 weeks", "2026-04-14T10:15:30Z"),
        ("one month ago", "2026-02-28T11:15:30Z"),
        ("last year", "2025-03-31T10:15:30Z"),
        ("Monday", "2026-03-29T22:00:00Z"),
        ("tuesday", "2026-03-23T23:00:00Z"),  # a week ago, before summer time
        ("last sunday at 7:05", "2026-03-29T05:05:00Z"),
        ("someday", None),
        ("yesterday 25:00", None),
        ("5000 years ago", None),
        ("", None),
    ],
)
def test_words_for_a_moment(words: str, expected: str | None) -> None:
    now = datetime(2026, 3, 31, 10, 15, 30, tzinfo=UTC).astimezone()
    assert moment(words, now) == expected


def test_flags_take_words(run: Run) -> None:
    run("doc", "create", "--title", "A", "--text", "Alpha.")
    for flag in ("--as-of", "--created-after"):
        hits = ["search", "alpha", flag, "an hour ago", "--jq", ".data.results | length"]
        assert run(*hits)[1] == {"--as-of": "0\n", "--created-after": "1\n"}[flag]
    assert json.loads(run("events", "read", "--since", "yesterday")[1])["meta"]["count"] > 0
    error = refused(run, "search", "alpha", "--as-of", "someday")
    assert error["hint"].endswith("Words are understood, too: yesterday, monday 9:30, 2 hours ago.")
    assert "retry" not in error
    assert "TIME may be said in words" in run("search", "--help")[1]


def test_a_retry_asks_the_same_question(run: Run) -> None:
    run("doc", "create", "--title", "A", "--text", "Alpha.")
    error = refused(run, "search", "alpha", "--as-of", "999", "--kb", "default")
    assert "retry" not in error
    error = refused(run, "list", "--all", "--kb", "defualt")
    assert error["retry"]["argv"] == ["kbproc", "doc", "list", "--kb", "default", "--all"]
