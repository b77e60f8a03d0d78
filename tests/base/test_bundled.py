"""Files that come with kbproc are found beside the package and in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbproc.base import bundled as module
from kbproc.base.bundled import bundled
from tests.kit.talk import REPO


def test_a_checkout_holds_the_files_beside_the_package() -> None:
    assert bundled("schemas/v1/error.json") == REPO / "schemas" / "v1" / "error.json"


def test_a_wheel_holds_the_files_in_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "kbproc"
    for folder in (tmp_path, package):
        (folder / "docs").mkdir(parents=True)
        (folder / "docs" / "errors.md").touch()
    monkeypatch.setattr(module, "PACKAGE", package)
    assert bundled("docs/errors.md") == package / "docs" / "errors.md"


def test_a_missing_file_and_a_folder_are_no_files() -> None:
    assert bundled("schemas/v1/nothing.json") is None
    assert bundled("schemas") is None
