"""Writes compound files, the containers of the older Office formats, for tests."""

from __future__ import annotations

import struct

_SECTOR, _ENTRY = 512, 128
_END, _NONE, _FAT = 0xFFFFFFFE, 0xFFFFFFFF, 0xFFFFFFFD


def compound(streams: dict[str, bytes]) -> bytes:
    """Returns a compound file of these streams; "folder/name" lies in a folder."""
    folders = sorted({path.partition("/")[0] for path in streams if "/" in path})
    names = ["Root Entry", *folders, *streams]
    children: dict[str, list[int]] = {"": [], **{folder: [] for folder in folders}}
    for number, name in enumerate(names[1:], 1):
        folder = "" if number <= len(folders) else name.rpartition("/")[0]
        children[folder].append(number)
    sectors: list[bytes] = []
    fat: list[int] = []

    def add(data: bytes) -> int:
        pieces = [data[at : at + _SECTOR] for at in range(0, len(data), _SECTOR)]
        first = len(sectors)
        sectors.extend(piece.ljust(_SECTOR, b"\0") for piece in pieces)
        fat.extend([*range(first + 1, first + len(pieces)), _END] if pieces else [])
        return first if pieces else _END

    entries = []
    for number, name in enumerate(names):
        kind = 5 if number == 0 else 1 if number <= len(folders) else 2
        data = streams[name] if kind == 2 else b""
        siblings = next((each for each in children.values() if number in each), [number])
        right = next((other for other in siblings if other > number), _NONE)
        own = children["" if number == 0 else name] if kind != 2 else []
        words = name.rpartition("/")[2].encode("utf-16-le") + b"\0\0"
        entry = words.ljust(64, b"\0") + struct.pack("<HBB", len(words), kind, 1)
        entry += struct.pack("<III", _NONE, right, min(own, default=_NONE)) + bytes(36)
        entries.append(entry + struct.pack("<IQ", add(data), len(data)))
    directory = add(b"".join(entries))
    count = 1
    while count * _SECTOR // 4 < len(sectors) + count:
        count += 1
    first = len(sectors)
    table = [*fat, *[_FAT] * count]
    table += [_NONE] * (count * _SECTOR // 4 - len(table))
    sectors.append(struct.pack(f"<{len(table)}I", *table))
    head = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(16)
    head += struct.pack("<HHHHH", 0x3E, 3, 0xFFFE, 9, 6) + bytes(10)
    # The bound below which streams lie in small sectors is 0 here.
    head += struct.pack("<IIIIIIII", count, directory, 0, 0, _END, 0, _END, 0)
    places = [*range(first, first + count), *[_NONE] * (109 - count)]
    return head + struct.pack("<109I", *places) + b"".join(sectors)
