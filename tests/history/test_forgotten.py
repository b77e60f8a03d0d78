"""The position of a node's erasures: unreadable means that all are repeated."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbproc.knowledge.history import forgotten
from kbproc.knowledge.history.forgotten import Forgotten


def test_a_position_comes_back_until_the_folder_holds_another_log(tmp_path: Path) -> None:
    assert forgotten.read(tmp_path) is None
    position = Forgotten(seq=7, due=5, sources=["aa"], keys=["bb"])
    forgotten.keep(tmp_path, position)
    assert forgotten.read(tmp_path) == position
    assert [path.stat().st_mode & 0o777 for path in tmp_path.iterdir()] == [0o600]
    forgotten.drop(tmp_path)
    forgotten.drop(tmp_path)
    assert forgotten.read(tmp_path) is None


@pytest.mark.parametrize("content", [b"", b"[]", b'{"seq": "7"}', b"\xff", b'{"seq": 7'])
def test_a_damaged_file_is_no_position(tmp_path: Path, content: bytes) -> None:
    forgotten.keep(tmp_path, Forgotten(seq=7))
    [path] = tmp_path.iterdir()
    path.write_bytes(content)
    assert forgotten.read(tmp_path) is None
