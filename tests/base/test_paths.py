"""Reading nearby files, and the links that must not lead out of their folder."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePath

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kbproc.base.errors import KbprocError
from kbproc.base.paths import (
    PathReading,
    absolute,
    from_here,
    locate,
    read_file,
    reason_of,
    suffix_of,
    write_new,
)

MOST = 100


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "folder"
    (folder / "deep").mkdir(parents=True)
    (folder / "a").write_bytes(b"a")
    (folder / "empty").write_bytes(b"")
    (folder / "large").write_bytes(b"x" * (MOST + 1))
    (folder / "just").write_bytes(b"x" * MOST)
    (folder / "deep" / "b").write_bytes(b"b")
    (folder / "deep" / "up").symlink_to(folder / "a")
    (folder / "out").symlink_to(tmp_path / "secret")
    (folder / "around").symlink_to(tmp_path)
    (tmp_path / "secret").write_bytes(b"secret")
    os.mkfifo(folder / "pipe")
    return folder


@pytest.fixture
def reading() -> Iterator[PathReading]:
    before = set(Path("/dev/fd").iterdir())
    with contextlib.closing(PathReading()) as reading:
        yield reading
    # The collector of garbage may close descriptors of earlier tests.
    assert set(Path("/dev/fd").iterdir()) <= before


def outcome(read: object, path: Path, within: Path) -> object:
    try:
        return read(path, MOST, within=within)  # type: ignore[operator]
    except KbprocError as error:
        return error.type, error.message


def test_one_after_the_other_is_read_as_each_alone(folder: Path, reading: PathReading) -> None:
    names = ["a", "deep/b", "empty", "just", "deep/up", "large", "out", "around/secret", "a"]
    names += ["pipe", "deep", "gone", "gone/a", "a/b", "deep/b", "deep/../out"]
    outcomes = [outcome(reading.read, folder / name, folder) for name in names]
    assert outcomes == [outcome(read_file, folder / name, folder) for name in names]
    assert outcomes[:5] == [b"a", b"b", b"", b"x" * MOST, b"a"]
    assert [one[0] for one in outcomes[5:8] if isinstance(one, tuple)] == [
        "input.too_large",
        "path.outside_root",
        "path.outside_root",
    ]


def test_a_file_that_says_it_is_empty_is_read(reading: PathReading) -> None:
    name = Path("/proc/self/comm")
    if not name.exists():
        pytest.skip("only Linux has such files")
    assert reading.read(name, MOST) == name.read_bytes()
    with pytest.raises(KbprocError, match="more than 3 bytes"):
        reading.read(name, 3)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("a", "folder/a"),
        ("./deep/", "folder/deep"),
        (".", "folder"),
        ("deep/../a", "folder/a"),
        ("..", ""),
        ("around", "folder/around"),
        ("around/../a", "../a"),
        ("~/a b", "home/a b"),
    ],
)
def test_a_path_that_a_person_types(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, place: str
) -> None:
    """Links keep their names, except where `..` would lead to another folder."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    path = absolute(text, field="--store")
    assert path == Path(os.path.normpath(tmp_path / place))
    assert from_here(folder / "a") == "a"
    assert from_here(folder) == str(folder)
    assert from_here(tmp_path / "b") == str(tmp_path / "b")


@pytest.mark.parametrize("text", ["~nobody-of-that-name", "~nobody-of-that-name/a"])
def test_a_home_of_nobody_is_refused(text: str) -> None:
    with pytest.raises(KbprocError) as caught:
        absolute(text, field="--store")
    assert (caught.value.field, caught.value.type) == ("--store", "input.invalid_params")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a\0b", "it holds a NUL"),
        ("file:///a%00b", "it holds a NUL"),
        ("\ud83d.md", "it holds half a character"),
        ("file://[x/y", "that is no URI of a file"),
        ("file://other/x", "that is a file of another machine"),
        ("~nobody-of-that-name/a", "~nobody-of-that-name is no user's home"),
    ],
)
def test_what_is_no_path_is_refused_in_words_that_no_python_changes(
    tmp_path: Path, text: str, why: str
) -> None:
    for read in (absolute, functools.partial(locate, cwd=tmp_path, root=None)):
        with pytest.raises(KbprocError) as caught:
            read(text, field="$.params.path")
        assert caught.value.message == f"$.params.path is {text!r}: {why}."


def test_a_name_that_is_too_long_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KbprocError) as caught:
        locate("x" * 300, cwd=tmp_path, root=None, field="$.params.path")
    assert caught.value.message == f"$.params.path is {'x' * 200!r}: File name too long."


@given(st.text(alphabet="aB.·/ \\~", max_size=8))
@example("a.PY")
@example("a.tar.gz/")
@example("..")
def test_a_suffix_is_that_of_pathlib(name: str) -> None:
    last = PurePath(name).name
    if sys.version_info < (3, 14) or not (last.endswith(".") or last.startswith("..")):
        assert suffix_of(name) == PurePath(name).suffix.lower()


@pytest.mark.parametrize(
    ("name", "suffix"),
    [
        ("B.", ""),
        ("a/B.", ""),
        ("..a", ".a"),
        ("a/..a", ".a"),
        (".a", ""),
        ("a/b.C", ".c"),
        ("", ""),
    ],
)
def test_a_suffix_is_the_same_by_every_python(name: str, suffix: str) -> None:
    assert suffix_of(name) == suffix


def refused(path: Path, parts: Iterable[bytes]) -> str:
    with pytest.raises(KbprocError) as caught:
        write_new(path, parts, field="$.params.path")
    return caught.value.type


@pytest.mark.parametrize("has_links", [True, False])
def test_a_new_file_is_there_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_links: bool
) -> None:
    if not has_links:
        monkeypatch.setattr(os, "link", without_links)
    path = tmp_path / "new"
    write_new(path, [b"one ", b"two"], field="$.params.path")
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"one two", 0o600)
    assert refused(path, [b"other"]) == "resource.already_exists"
    assert refused(tmp_path / "no" / "such", [b"x"]) == "resource.not_found"
    assert refused(tmp_path / "full", half()) == "store.io"
    assert [entry.name for entry in tmp_path.iterdir()] == ["new"]
    assert path.read_bytes() == b"one two"


def without_links(*_: object) -> None:
    raise OSError(errno.EPERM, "Operation not permitted")


def half() -> Iterator[bytes]:
    yield b"half"
    raise OSError(errno.ENOSPC, "No space left on device")


def test_an_error_without_a_number_has_its_words() -> None:
    error = OSError("Cannot call rmtree on a symbolic link")
    error.filename = "a"  # so does Python from 3.12 on
    assert reason_of(error) == "Cannot call rmtree on a symbolic link"
    assert reason_of(OSError(errno.ENOSPC, "full")) == "full"
    assert reason_of(OSError()) == "OSError"
