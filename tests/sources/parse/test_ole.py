"""A compound file's streams are found by their paths, and damage is refused."""

from __future__ import annotations

import struct

import pytest

from kbproc.base.errors import KbprocError
from kbproc.engine.sources.parse.ole import CompoundFile, OleError, opened, summary
from tests.kit.compound import compound

FAT, DIRECTORY = 76, 48  # places in the head: the first sector of the table, and the directory


def changed(data: bytes, at: int, number: int, form: str = "<I") -> bytes:
    """Returns the file with another number at this place."""
    content = bytearray(data)
    struct.pack_into(form, content, at, number)
    return bytes(content)


def sector(data: bytes, at: int) -> int:
    """Returns the place of the sector whose number stands at a place of the head."""
    number: int = struct.unpack_from("<I", data, at)[0]
    return 512 * (number + 1)


def properties(codepage: int, **texts: bytes) -> bytes:
    """Returns the stream of a document's properties."""
    values = [(1, struct.pack("<II", 2, codepage))]
    values += [
        ({"title": 2, "author": 4}[name], struct.pack("<II", 30, len(text)) + text)
        for name, text in texts.items()
    ]
    entries, content = b"", b""
    for property, value in values:
        entries += struct.pack("<II", property, 8 + 8 * len(values) + len(content))
        content += value
    head = bytes(44) + struct.pack("<I", 48)
    return head + struct.pack("<II", 0, len(values)) + entries + content


def test_streams_are_found_by_their_paths() -> None:
    long = bytes(range(256)) * 10
    file = CompoundFile(compound({"Book": long, "a/One": b"1", "a/Two": b"22", "b/One": b""}))
    assert set(file.streams) == {"Book", "a/One", "a/Two", "b/One"}
    assert file.read("Book") == long
    assert [file.read(path) for path in ("a/One", "a/Two", "b/One")] == [b"1", b"22", b""]


def test_a_stream_that_is_not_there_is_empty() -> None:
    file = CompoundFile(compound({"Book": b"x"}))
    assert [file.read(path) for path in ("book", "Root Entry", "")] == [b"", b"", b""]


def test_small_streams_lie_in_the_stream_of_the_root() -> None:
    data = compound({"Mini": b"y" * 512, "Root": b"A" * 64 + b"B" * 64, "Small": b"12345"})
    entry = sector(data, DIRECTORY)
    root, mini, small = entry, entry + 128, entry + 3 * 128
    (stream_of_root,) = struct.unpack_from("<I", data, entry + 2 * 128 + 116)
    (table,) = struct.unpack_from("<I", data, mini + 116)
    # The small stream has the second small sector, which is the last of its chain.
    data = changed(data, 512 * (table + 1) + 4, 0xFFFFFFFE)
    for at, number in ((56, 64), (60, table), (root + 116, stream_of_root), (root + 120, 128)):
        data = changed(data, at, number)
    file = CompoundFile(changed(data, small + 116, 1))
    assert file.read("Small") == b"BBBBB"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "it has no head"),
        (b"PK\3\4" + bytes(600), "it has no head"),
        (compound({"Book": b"x"})[:511], "it has no head"),
        (changed(compound({"Book": b"x"}), 30, 5, "<H"), "its sectors have no valid size"),
        (changed(compound({"Book": b"x"}), 32, 12, "<H"), "its sectors have no valid size"),
        (compound({"Book": b"x"})[:1024], "a sector lies behind its end"),
        (changed(compound({"Book": b"x"}), DIRECTORY, 0), "it has no directory"),
    ],
)
def test_a_damaged_file_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(OleError) as caught:
        CompoundFile(data)
    assert str(caught.value) == message


def test_sectors_in_a_circle_are_damage_and_no_endless_loop() -> None:
    data = compound({"Book": b"x" * 1200})
    circle = changed(data, sector(data, FAT) + 4, 0)
    with pytest.raises(OleError) as caught:
        CompoundFile(circle).read("Book")
    assert str(caught.value) == "its sectors run in a circle or behind its end"
    behind = changed(data, sector(data, FAT), 9999)
    with pytest.raises(OleError):
        CompoundFile(behind).read("Book")


def test_a_last_sector_that_is_cut_is_filled_with_zeros() -> None:
    data = compound({"Book": b"x" * 600})
    assert CompoundFile(data[:-4]).read("Book") == b"x" * 600
    with pytest.raises(OleError):
        CompoundFile(data[:-512])


def test_entries_that_name_each_other_are_listed_once() -> None:
    data = compound({"One": b"1", "Two": b"2"})
    second = sector(data, DIRECTORY) + 2 * 128
    file = CompoundFile(changed(changed(data, second + 68, 1), second + 72, 77))
    assert sorted(file.streams) == ["One", "Two"]


def test_the_error_of_a_damaged_file_names_it_and_what_to_do() -> None:
    with pytest.raises(KbprocError) as caught:
        opened(b"x", "a.doc", "Save it as PDF.")
    assert caught.value.type == "operation.failed"
    assert caught.value.message == "a.doc is damaged: it has no head."
    assert caught.value.hint == "Save it as PDF."
    assert opened(compound({"Book": b"x"}), "a.doc").read("Book") == b"x"


@pytest.mark.parametrize(
    ("stream", "texts"),
    [
        (
            properties(1252, title=b"Gr\xf6\xdfe\0rest", author=b"Ann"),
            {"title": "Größe", "author": "Ann"},
        ),
        (properties(65001, title="中".encode()), {"title": "中"}),
        (properties(1251, author="Анна".encode("cp1251")), {"author": "Анна"}),
        (properties(9, title=b"x"), {}),
        (properties(1252, title=b"x" * 3000), {"title": "x" * 1000}),
        (properties(1252, title=b"whole", author=b"cut")[:-11], {"title": "whole"}),
        (b"short", {}),
        (b"", {}),
    ],
)
def test_title_and_author_are_read_from_the_properties(
    stream: bytes, texts: dict[str, str]
) -> None:
    file = CompoundFile(compound({"\x05SummaryInformation": stream}))
    assert summary(file) == texts
