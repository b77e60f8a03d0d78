"""An endpoint's answer is bounded in bytes and silence, and its key is read from a private file."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kbproc.base.errors import KbprocError
from kbproc.engine.models import endpoint
from kbproc.engine.models.endpoint import (
    HEADERS,
    BodyTooLong,
    PackedBody,
    Silence,
    client,
    key_in,
    raw,
)


def response(*parts: bytes, coding: str | None = None) -> Any:
    headers = {} if coding is None else {"content-encoding": coding}
    return SimpleNamespace(headers=headers, iter_raw=lambda: iter(parts))


def test_an_unpacked_body_comes_as_it_was_sent(subtests: pytest.Subtests) -> None:
    for coding in (None, "", "identity", " Identity "):
        with subtests.test(coding=coding):
            assert list(raw(response(b"a", b"", b"bc", coding=coding))) == [b"a", b"", b"bc"]
            assert HEADERS == {"Accept-Encoding": "identity"}


def test_a_packed_body_is_refused_before_it_is_read(subtests: pytest.Subtests) -> None:
    for coding in ("gzip", "GZIP", "identity, br", "deflate"):
        with subtests.test(coding=coding), pytest.raises(PackedBody):
            next(raw(response(b"a", coding=coding)))


def test_a_body_may_have_exactly_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "MOST_BYTES", 5)
    assert list(raw(response(b"abc", b"de"))) == [b"abc", b"de"]
    parts = raw(response(b"abc", b"def"))
    assert next(parts) == b"abc"
    with pytest.raises(BodyTooLong):
        next(parts)


def test_a_silence_begins_anew_with_each_part(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [5.0]
    monkeypatch.setattr(endpoint, "time", SimpleNamespace(monotonic=lambda: now[0]))
    with Silence(100.0) as silence:
        assert silence.deadline == 105.0
        now[0] = 50.0
        assert silence.deadline == 105.0
        silence.restart()
        assert silence.deadline == 150.0


def test_the_client_takes_the_options_of_httpx() -> None:
    with client(timeout=3.0, headers=HEADERS) as one:
        assert one.timeout.read == 3.0
        assert one.headers["accept-encoding"] == "identity"


def wrong(reason: str) -> KbprocError:
    return KbprocError("llm.unavailable", reason)


def key_file(folder: Path, data: bytes, mode: int = 0o600) -> Path:
    path = folder / "key"
    path.write_bytes(data)
    path.chmod(mode)
    return path


def test_a_key_loses_the_spaces_around_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    path = key_file(tmp_path, b" secret\n")
    assert key_in(str(path), wrong) == key_in("~/key", wrong) == "secret"


@pytest.mark.parametrize(
    ("data", "mode", "problem"),
    [
        (b"secret", 0o640, "is no file of mode 0600: others may read the key."),
        (b"secret", 0o604, "is no file of mode 0600: others may read the key."),
        (b" \n", 0o600, "holds no key."),
        (b"", 0o400, "holds no key."),
        (b"\xff", 0o600, ", which should hold the key, can't be read."),
    ],
)
def test_a_key_that_others_may_read_or_that_is_none_is_refused(
    tmp_path: Path, data: bytes, mode: int, problem: str
) -> None:
    path = key_file(tmp_path, data, mode)
    with pytest.raises(KbprocError) as error:
        key_in(str(path), wrong)
    separator = "" if problem.startswith(",") else " "
    assert error.value.message == f"{path}{separator}{problem}"


def test_a_place_that_is_no_file_is_refused_and_blocks_nothing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    for name, problem in (
        ("nowhere", ", which should hold the key, can't be read."),
        ("pipe", " is no file of mode 0600: others may read the key."),
    ):
        with pytest.raises(KbprocError) as error:
            key_in(str(tmp_path / name), wrong)
        assert error.value.message == f"{tmp_path / name}{problem}"
