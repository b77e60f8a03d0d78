"""Hints on installing extras follow the way that kbproc was installed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kbproc.base.host import installs


@pytest.mark.parametrize(
    ("place", "file", "command"),
    [
        ("venv", "pyvenv.cfg", "pip install 'kbproc[meaning]'"),
        ("pipx/venvs/kbproc", "pipx_metadata.json", "pipx install --force 'kbproc[meaning]'"),
        ("uv/tools/kbproc", "uv-receipt.toml", "uv tool install 'kbproc[meaning]'"),
        ("uv/archive-v0/7w2", "pyvenv.cfg", "uvx --from 'kbproc[meaning]' kbproc"),
    ],
)
def test_an_extra_comes_by_whatever_brought_kbproc(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, file: str, command: str
) -> None:
    installed_from(monkeypatch, None)
    (tmp_path / place).mkdir(parents=True)
    (tmp_path / place / file).touch()
    assert installs("meaning", tmp_path / place) == command


@pytest.mark.parametrize(
    ("origin", "what"),
    [
        (
            {"url": "file:///home/robin/my%20kbproc", "dir_info": {"editable": True}},
            "-e '/home/robin/my kbproc[meaning]'",
        ),
        ({"url": "file:///srv/kbproc", "dir_info": {}}, "'/srv/kbproc[meaning]'"),
        (
            {"url": "https://host/a/kbproc.git", "vcs_info": {"vcs": "git", "commit_id": "1"}},
            "'kbproc[meaning] @ git+https://host/a/kbproc.git'",
        ),
        (
            {"url": "https://host/kbproc-0.1.0.whl", "archive_info": {}},
            "'kbproc[meaning] @ https://host/kbproc-0.1.0.whl'",
        ),
    ],
)
def test_it_comes_from_where_it_came_before(
    monkeypatch: pytest.MonkeyPatch, origin: dict[str, Any], what: str
) -> None:
    """Hints name the origin, since an index may lack kbproc or have another project of its name."""
    installed_from(monkeypatch, json.dumps(origin))
    assert installs("meaning", Path("/nowhere")) == f"pip install {what}"


def installed_from(monkeypatch: pytest.MonkeyPatch, direct_url: str | None) -> None:
    class Installed:
        def read_text(self, name: str) -> str | None:
            assert name == "direct_url.json"
            return direct_url

    monkeypatch.setattr("importlib.metadata.distribution", lambda name: Installed())
