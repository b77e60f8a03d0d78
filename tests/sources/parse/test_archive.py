"""Archives: their lists, their files as parts, and the limits that bombs and odd names meet."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile
from collections.abc import Callable

import pytest

from kbproc.base.errors import KbprocError
from kbproc.engine.sources.parse import archive, packed
from kbproc.engine.sources.parse.blocks import Parsed
from kbproc.engine.sources.parse.formats import NO_OPTIONS, ReadOptions, detect, parse
from tests.kit.zips import zipped

FILES = {"readme.md": b"# Read me", "docs/tide.txt": "Hoch um sechs, Größe.".encode()}


def tarred(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as opened:
        for member, data in members:
            member.size = len(data)
            opened.addfile(member, io.BytesIO(data))
    return target.getvalue()


def plain_tar(files: dict[str, bytes]) -> bytes:
    return tarred(*((tarfile.TarInfo(name), data) for name, data in files.items()))


def read(data: bytes, name: str = "a.zip") -> Parsed:
    assert detect(name, data[:4096], NO_OPTIONS) is None
    assert detect(name, data[:4096], ReadOptions(archives=True)) == "archive"
    return parse(data, "archive", name)


PACKERS: dict[str, Callable[[dict[str, bytes]], bytes]] = {
    "a.zip": zipped,
    "a.tar": plain_tar,
    "a.tar.gz": lambda files: gzip.compress(plain_tar(files)),
    "a.tgz": lambda files: gzip.compress(plain_tar(files)),
    "a.tar.bz2": lambda files: bz2.compress(plain_tar(files)),
    "a.tar.xz": lambda files: lzma.compress(plain_tar(files)),
}


@pytest.mark.parametrize("name", PACKERS)
def test_the_files_are_listed_and_are_parts(name: str) -> None:
    parsed = read(PACKERS[name](FILES), name)
    assert {part.name: part.data for part in parsed.parts} == FILES
    assert parsed.blocks[0].text == "readme.md (9 bytes)\ndocs/tide.txt (23 bytes)"
    assert (parsed.metadata, parsed.unread) == ({"files": 2}, {})


def test_one_compressed_file_is_one_part() -> None:
    parsed = read(gzip.compress(b"# Read me"), "notes.md.gz")
    assert [(part.name, part.data) for part in parsed.parts] == [("notes.md", b"# Read me")]


def test_names_that_lead_out_links_and_devices_are_counted() -> None:
    names = ["../up.md", "/etc/passwd", "a/../../b.md", "ok.md", ".hidden", "__MACOSX/x", "a\\c.md"]
    parsed = read(zipped(dict.fromkeys(names, b"x")))
    assert [part.name for part in parsed.parts] == ["ok.md", "a/c.md"]
    assert parsed.unread == {"embedded_files": 5}
    link, device = tarfile.TarInfo("link.md"), tarfile.TarInfo("device")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    device.type = tarfile.CHRTYPE
    parsed = read(tarred((link, b""), (device, b""), (tarfile.TarInfo("ok.md"), b"x")), "a.tar")
    assert [part.name for part in parsed.parts] == ["ok.md"]
    assert parsed.unread == {"embedded_files": 2}


def test_a_link_in_a_zip_is_counted() -> None:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as opened:
        link = zipfile.ZipInfo("link.md")
        link.external_attr = 0o120777 << 16
        opened.writestr(link, "/etc/passwd")
        opened.writestr("ok.md", "x")
    assert [part.name for part in read(target.getvalue()).parts] == ["ok.md"]


@pytest.mark.parametrize(
    ("name", "pack"),
    [
        ("a.zip", lambda zeros: zipped({"a": zeros})),
        ("a.gz", gzip.compress),
        ("a.tar.gz", lambda zeros: gzip.compress(plain_tar({"a": zeros}))),
        ("a.xz", lzma.compress),
    ],
)
def test_a_bomb_is_refused(name: str, pack: Callable[[bytes], bytes]) -> None:
    data = pack(bytes(packed.RATIO_FROM + (1 << 20)))
    with pytest.raises(KbprocError) as caught:
        parse(data, "archive", name)
    assert caught.value.type == "input.too_large"


def test_more_files_and_bytes_than_the_limits_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(archive, "MAX_READ", 25)
    monkeypatch.setattr(archive, "MAX_FILES", 3)
    for pack, name in ((zipped, "a.zip"), (plain_tar, "a.tar")):
        parsed = read(pack({f"{i}.md": b"0123456789" for i in range(6)}), name)
        assert [part.name for part in parsed.parts] == ["0.md", "1.md"]
        assert parsed.unread == {"embedded_files": 4}


@pytest.mark.parametrize("name", PACKERS)
def test_a_damaged_archive_is_refused_or_read_in_part(name: str) -> None:
    whole = PACKERS[name](FILES)
    for end in range(0, len(whole), max(1, len(whole) // 40)):
        try:
            parse(whole[:end], "archive", name)
        except KbprocError as error:
            assert error.type == "operation.failed"


def test_a_file_with_a_password_is_counted() -> None:
    data = bytearray(zipped({"a.md": b"secret", "b.md": b"open"}))
    directory = data.index(b"PK\x01\x02")
    data[6] |= 1
    data[directory + 8] |= 1
    parsed = read(bytes(data))
    assert [part.name for part in parsed.parts] == ["b.md"]
    assert parsed.unread == {"embedded_files": 1}
