"""An incomplete installation names what it lacks, in one line and without a traceback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kbproc import __version__
from kbproc.base import libraries
from tests.kit.talk import REPO

_WITHOUT = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == {library!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
sys.argv = ["kbproc", *{words!r}]
from kbproc.__main__ import main
main()
"""


def ran(library: str, *words: str, home: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _WITHOUT.format(library=library, words=list(words))],
        env={"HOME": str(home), "PYTHONPATH": str(REPO), "PATH": "/usr/bin:/bin"},
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("words", [["version"], ["doctor"], ["status"], ["call", "ping"]])
def test_without_what_everything_needs(tmp_path: Path, words: list[str]) -> None:
    done = ran("msgspec", *words, home=tmp_path)
    assert done.returncode == 2
    assert done.stdout == (f"kbproc {__version__}\n" if words == ["version"] else "")
    message, hint = done.stderr.splitlines()
    assert message == "Error: kbproc is not installed whole: msgspec missing."
    assert hint == f"Hint: {sys.executable} -m pip install msgspec"


def test_without_what_a_store_needs(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("a text")
    done = ran("tantivy", "add", "a.md", "--format", "text", home=tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "Error (internal.error): kbproc is not installed whole: tantivy missing." in done.stderr
    assert "-m pip install tantivy" in done.stderr


def test_an_environment_of_uv_has_no_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr("shutil.which", lambda name: "/bin/uv")
    _, command = libraries.advice(ModuleNotFoundError("x", name="lxml.etree"))
    assert command == f"/bin/uv pip install --python {sys.executable} lxml"


def test_a_module_of_python_itself_is_no_package() -> None:
    sentence, hint = libraries.advice(ModuleNotFoundError("x", name="_sqlite3"))
    assert "its own module _sqlite3" in sentence and "pip" not in hint


def test_errors_of_its_own_stay_errors() -> None:
    assert not libraries.is_lack(ModuleNotFoundError("x", name="kbproc.nowhere"))
    assert not libraries.is_lack(ImportError("x", name="msgspec"))


def test_what_the_metadata_names_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["msgspec>=0.22", "no-such-library[x]>=1", 'torch>=2; extra == "export"']
    monkeypatch.setattr("importlib.metadata.requires", lambda name: lines)
    assert libraries.missing_requirements() == ["no-such-library[x]>=1"]
