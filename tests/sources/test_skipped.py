"""Files that tools make are left out by a rule that has a name, and people's files are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbproc.engine.sources.skipped import BUILD_RESULTS, LOCK_FILES, is_of_project, rule_for

NOWHERE = Path("/no/such/folder")


def rule(name: str, *beside: str, is_folder: bool = True) -> str | None:
    return rule_for(NOWHERE / name, is_folder, beside)


@pytest.mark.parametrize("name", ["node_modules", "__pycache__", "a.egg-info", "a-1.0.dist-info"])
def test_dependencies_are_left_out_in_any_surroundings(name: str) -> None:
    assert rule(name) == f"dependencies: {name}/"
    assert rule(name, is_folder=False) is None


@pytest.mark.parametrize("name", sorted(BUILD_RESULTS))
def test_build_results_are_left_out_only_within_a_project(name: str) -> None:
    assert rule(name, "notes.md", "package.json.txt") is None
    assert rule(name, "notes.md", "Makefile") == f"build results: {name}/"
    assert rule(name, "Cargo.lock") == f"build results: {name}/"
    assert rule(name, "Makefile", is_folder=False) is None


@pytest.mark.parametrize("name", ["package-lock.json", "go.sum", "uv.lock"])
def test_lock_files_are_left_out_and_folders_of_their_name_are_not(name: str) -> None:
    assert rule(name, is_folder=False) == "lock files"
    assert rule(name) is None
    assert rule(name.upper(), is_folder=False) is None


@pytest.mark.parametrize(
    "name",
    [
        *("~$Budget.xlsx", "~$x.docx", "~WRL0001.tmp", "#notes.md#", "notes.md~", "notes.md.swp"),
        *("notes.bak", "notes.md.BAK", "report.pdf.crdownload", "film.mkv.part"),
        *("desktop.ini", "Desktop.ini", "Thumbs.db"),
    ],
)
def test_leftovers_of_programs_are_left_out(name: str) -> None:
    assert rule(name, is_folder=False) == "leftovers of programs"
    assert rule(name) is None


@pytest.mark.parametrize(
    "name", ["#", "##", "~", "#1 plan.md", "C#", "bak", "part.md", "a.bak.md", "x.tmp", "$~.md"]
)
def test_names_that_are_nearly_leftovers_are_read(name: str) -> None:
    assert rule(name, is_folder=False) is None


def test_a_virtual_environment_is_known_by_its_name_or_its_files(tmp_path: Path) -> None:
    for name in ("venv", "virtualenv"):
        assert rule(name) == f"virtual environments: {name}/"
    assert rule("mine") is None
    python, conda, other = (tmp_path / name for name in ("python", "conda", "other"))
    python.mkdir()
    (python / "pyvenv.cfg").touch()
    (conda / "conda-meta").mkdir(parents=True)
    (other / "pyvenv.cfg").mkdir(parents=True)
    (other / "conda-meta").touch()
    assert rule_for(python, True, ()) == "virtual environments: python/"
    assert rule_for(conda, True, ()) == "virtual environments: conda/"
    assert rule_for(other, True, ()) is None
    assert rule_for(python, False, ()) is None


@pytest.mark.parametrize("name", ["x" * 5000, "notes", "src", "Build"])
def test_other_folders_are_read(name: str) -> None:
    assert rule(name, "pyproject.toml") is None


def test_names_that_decide_about_the_folders_beside_them_are_known() -> None:
    assert all(map(is_of_project, LOCK_FILES))
    assert is_of_project("pyproject.toml")
    assert is_of_project("node_modules")
    assert not is_of_project("build")
    assert not is_of_project("notes.md")
