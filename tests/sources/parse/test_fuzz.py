"""Small files changed at random: each is read, or refused with a typed failure, in time.

The corpus is `corpus/`. A file that has ever broken something stays there: every file is also
tried as it is.
"""

from __future__ import annotations

import contextlib
import io
import random
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kbproc.base.errors import KbprocError
from kbproc.engine.sources import gitignore
from kbproc.engine.sources.parse.formats import detect
from kbproc.engine.sources.parse.pool import ParserPool
from kbproc.knowledge.transfer import portable
from tests.kit.parsing import parse_one
from tests.kit.patience import LONG, PATIENCE

FOLDER = Path(__file__).parent / "corpus"
CORPUS = sorted(FOLDER.iterdir())
MUTANTS = 3000 if LONG else 40  # for each file
MOST_BYTES = 100_000
PACKED = {".docx", ".xlsx", ".pptx", ".odt", ".ods", ".odp", ".epub"}
REFUSALS = {"operation.failed", "input.unsupported_type", "input.too_large"}

# Bytes that have a meaning for parsers.
TOKENS = (
    b"\0 \xff\xfe \xef\xbb\xbf \xed\xa0\x80 \xe2\x80\xae < > <p> </p> <table> <!-- ]]> &#x110000; "
    b"&amp; # * ** _ ` ``` ~~~ [ ] ( ) ![ ]( --- | \\ / /* // \" ' { } $ % << >> obj endobj "
    b"stream endstream /Length /Kids /Parent /Filter /FlateDecode trailer xref startxref 0 1e999 "
    b"99999999999999999999 4294967296 PK\3\4 PK\1\2 <w:p> <w:t> ! [!a] [[:alpha:]] ** null true "
    b'{"type": "end" "version": \\ud800 &x *x !!python'
).split(b" ")


def mutant(path: Path, number: int) -> bytes:
    """The file's bytes, changed in a few places; number 0 is the file itself."""
    data = path.read_bytes()
    if number == 0:
        return data
    chance = random.Random(f"{path.name} {number}")
    if path.suffix in PACKED and chance.random() < 0.7:  # else hardly any would be unpacked
        return repacked(data, chance)
    return changed(data, chance)


def changed(data: bytes, chance: random.Random) -> bytes:
    for _ in range(chance.choice([1, 1, 2, 5, 20])):
        start = chance.randrange(len(data) + 1)
        end = min(len(data), start + chance.choice([0, 1, 4, 30, 200]))
        piece = data[start:end]
        data = data[:start] + chance.choice(CHANGES)(piece, chance) + data[end:]
    return data[:MOST_BYTES]


CHANGES: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    lambda piece, chance: b"",
    lambda piece, chance: piece + chance.choice(TOKENS),
    lambda piece, chance: chance.choice(TOKENS) * chance.choice([1, 2, 1000]),
    lambda piece, chance: piece * chance.choice([2, 50, 1000]),
    lambda piece, chance: piece[::-1],
    lambda piece, chance: bytes(byte ^ 1 << chance.randrange(8) for byte in piece),
    lambda piece, chance: chance.randbytes(len(piece)),
    lambda piece, chance: chance.choice(CORPUS).read_bytes()[:500],
)


def repacked(data: bytes, chance: random.Random) -> bytes:
    """Returns a valid archive, one of whose files is changed."""
    archive, target = zipfile.ZipFile(io.BytesIO(data)), io.BytesIO()
    unlucky = chance.choice(archive.namelist())
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as changing:
        for name in archive.namelist():
            part = archive.read(name)
            part = changed(part, chance) if name == unlucky else part
            changing.writestr(zipfile.ZipInfo(name), part, archive.getinfo(name).compress_type)
    return target.getvalue()


@contextlib.contextmanager
def naming(path: Path, number: int) -> Iterator[None]:
    """Adds the call that makes the file again to any error."""
    try:
        yield
    except Exception as error:
        error.add_note(f"mutant(FOLDER / {path.name!r}, {number}); if it is mended, keep the file")
        raise


@pytest.fixture(scope="module")
def pool() -> Iterator[ParserPool]:
    pool = ParserPool(workers=2, timeout_s=PATIENCE)
    yield pool
    pool.close()


@pytest.mark.parametrize(
    "path", [path for path in CORPUS if detect(path.name, path.read_bytes())], ids=lambda p: p.name
)
def test_documents(pool: ParserPool, path: Path) -> None:
    type = detect(path.name, path.read_bytes())
    assert type
    read = 0
    for number in range(MUTANTS):
        with naming(path, number):
            try:
                parsed = parse_one(pool, mutant(path, number), type, path.name)
                read += bool(parsed.chunks)
            except KbprocError as error:
                assert error.type in REFUSALS
                assert "took longer" not in error.message
                assert "crashed" not in error.message
    assert read > MUTANTS // 20, "most are broken beyond reading, not all"
    assert parse_one(pool, path.read_bytes(), type, path.name).chunks, "a worker is there as before"
    assert len(pool.pids) <= 2


def test_rules(tmp_path: Path) -> None:
    [path] = [path for path in CORPUS if path.suffix == ".gitignore"]
    names = ["a.log", "keep.log", "build", "x/node_modules", "docs/a/b.pdf", "a" * 200, "a/" * 90]
    results = set()
    for number in range(MUTANTS):
        (tmp_path / ".gitignore").write_bytes(mutant(path, number))
        errors: list[KbprocError] = []
        with naming(path, number):
            ignores = gitignore.read(tmp_path, on_error=lambda _, why, to=errors: to.append(why))
            results |= {
                gitignore.ignored(tmp_path / name, False, ignores) is not None for name in names
            }
            assert {error.type for error in errors} <= {"input.too_large"}
    assert results == {True, False}


def test_exports() -> None:
    [path] = [path for path in CORPUS if path.suffix == ".ndjson"]
    assert len(list(portable.read(io.BytesIO(path.read_bytes())))) > 3
    types = {"input.invalid_params", "input.unsupported_type", "store.incompatible"}
    refused = 0
    for number in range(1, MUTANTS):
        with naming(path, number):
            try:
                list(portable.read(io.BytesIO(mutant(path, number))))
            except KbprocError as error:
                assert error.type in types
                refused += 1
    assert refused > MUTANTS // 2
