"""The full-text index's files: damage anywhere is found, and the file is named."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kbproc.base.durable import SoundFiles
from kbproc.engine.log.record import Position
from kbproc.engine.projections.catalog.rows import IndexRow
from kbproc.engine.projections.fulltext.files import CURRENT, damaged, is_sealed, sealed
from kbproc.engine.projections.fulltext.index import FullText


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed index of two segments with a deletion."""
    folder = tmp_path_factory.mktemp("index") / "fulltext"
    index = FullText.open(folder)
    for number in range(1, 4):
        rows = [IndexRow(id, id, "default", "", None, f"text {id}") for id in range(number, 7, 3)]
        index.apply([2] if number == 3 else [], rows, Position(number, f"{number}"))
        index.commit()
    index.close()
    return folder


def parts(folder: Path) -> list[Path]:
    """Returns the files of the index in use."""
    generation = folder / json.loads((folder / CURRENT).read_bytes())["generation"]
    meta = json.loads((generation / "meta.json").read_bytes())
    stems = [segment["segment_id"].replace("-", "") for segment in meta["segments"]]
    return [path for path in generation.iterdir() if path.name.split(".")[0] in stems]


def test_a_sound_index_has_no_damage(written: Path, tmp_path: Path) -> None:
    assert damaged(written, SoundFiles()) == []
    assert damaged(tmp_path, SoundFiles()) == [], "there is no index yet"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), bit=st.integers(0, 7), harm=st.sampled_from(["flip", "cut", "lose"]))
def test_damage_to_any_file_names_it(
    written: Path, tmp_path: Path, data: st.DataObject, bit: int, harm: str
) -> None:
    copy = tmp_path / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(written, copy)
    path = data.draw(st.sampled_from(sorted(parts(copy))))
    content = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    if harm == "lose":
        path.unlink()
    else:
        content[at] ^= 1 << bit
        path.write_bytes(content[:at] if harm == "cut" else content)
    assert damaged(copy, SoundFiles()) == [path.name]


def test_a_file_that_does_not_end_as_written_is_named(written: Path, tmp_path: Path) -> None:
    """The last four bytes are a magic number, which no checksum covers."""
    copy = Path(shutil.copytree(written, tmp_path / "copy"))
    path = min(parts(copy))
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert damaged(copy, SoundFiles()) == [path.name]


def test_a_footer_of_another_version_is_damage_at_each_look(written: Path, tmp_path: Path) -> None:
    """No checksum covers the version, so a file that has another one is not kept as sound."""
    copy = Path(shutil.copytree(written, tmp_path / "copy"))
    path = min(parts(copy))
    content = path.read_bytes()
    assert content.count(b'"major":0') == 1
    path.write_bytes(content.replace(b'"major":0', b'"major":9'))
    for _ in range(2):
        looks = SoundFiles(tmp_path)
        assert damaged(copy, looks) == [path.name]
        looks.keep()
    path.write_bytes(content)
    for _ in range(2):
        looks = SoundFiles(tmp_path)
        assert damaged(copy, looks) == []
        looks.keep()


class ChangesMeanwhile(SoundFiles):
    """Replaces a file of the index while the first one is looked at, as a merge may."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.has_changed = False

    def is_sound(self, file: Path, check: Callable[[Path], bool]) -> bool:
        if not self.has_changed:
            self.has_changed = True
            index = FullText.open(self.folder)
            index.apply([5], [], Position(4, "4"))  # document 2 of the same segment is deleted
            index.commit()
            index.close()
        return super().is_sound(file, check)


def test_files_that_are_replaced_during_the_look_are_no_damage(
    written: Path, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(written, tmp_path / "copy"))
    before = set(parts(copy))
    looks = ChangesMeanwhile(copy)
    assert damaged(copy, looks) == []
    assert looks.has_changed and before - set(parts(copy)), "a file must be gone by then"


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"generation": "1"}', b"\xff"])
def test_a_damaged_pointer_is_named(written: Path, tmp_path: Path, content: bytes) -> None:
    copy = Path(shutil.copytree(written, tmp_path / "copy"))
    (copy / CURRENT).write_bytes(content)
    assert damaged(copy, SoundFiles()) == [CURRENT]


def test_a_changed_schema_is_named(written: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(written, tmp_path / "copy"))
    path = copy / json.loads((copy / CURRENT).read_bytes())["generation"] / "meta.json"
    meta = json.loads(path.read_bytes())
    meta["schema"] = meta["schema"][:-1]
    path.write_text(json.dumps(meta))
    assert damaged(copy, SoundFiles()) == ["meta.json"]


MEMBERS = st.dictionaries(st.sampled_from("abc"), st.integers(0, 3) | st.text(max_size=2))


@given(members=MEMBERS, other=MEMBERS)
def test_a_seal_fits_only_its_members(members: dict[str, object], other: dict[str, object]) -> None:
    assert is_sealed(sealed(members))
    assert is_sealed({**other, "check": sealed(members)["check"]}) == (members == other)
    assert not is_sealed(members)
