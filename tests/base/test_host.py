"""How kbproc is installed, as far as its hints go by that."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbproc.base.host import installs


@pytest.mark.parametrize(
    ("place", "file", "command"),
    [
        ("venv", "pyvenv.cfg", "pip install 'kbproc[models]'"),
        ("pipx/venvs/kbproc", "pipx_metadata.json", "pipx install --force 'kbproc[models]'"),
        ("uv/tools/kbproc", "uv-receipt.toml", "uv tool install 'kbproc[models]'"),
        ("uv/archive-v0/7w2", "pyvenv.cfg", "uvx --from 'kbproc[models]' kbproc"),
    ],
)
def test_an_extra_comes_by_whatever_brought_kbproc(
    tmp_path: Path, place: str, file: str, command: str
) -> None:
    (tmp_path / place).mkdir(parents=True)
    (tmp_path / place / file).touch()
    assert installs("models", tmp_path / place) == command
