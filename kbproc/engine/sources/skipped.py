"""Finds the rule by which an ingest leaves out files that tools make.

The rules name installed dependencies, virtual environments, build results, lock files, and what
editors, browsers and file managers leave beside a person's files.
"""

from __future__ import annotations

from collections.abc import Collection
from fnmatch import fnmatchcase
from pathlib import Path

# Folders of installed packages or caches; they are left out in any surroundings.
DEPENDENCIES = frozenset(
    {
        "node_modules",
        "bower_components",
        "jspm_packages",
        "site-packages",
        "__pycache__",
        "__pypackages__",
    }
)
# Each of these is also an ordinary word, so such a folder is a build result only in a project.
BUILD_RESULTS = frozenset({"build", "dist", "target", "out", "_build", "htmlcov", "coverage"})
LOCK_FILES = frozenset(
    {
        "package-lock.json",
        "npm-shrinkwrap.json",
        "yarn.lock",
        "pnpm-lock.yaml",
        "bun.lock",
        "bun.lockb",
        "deno.lock",
        "poetry.lock",
        "Pipfile.lock",
        "pdm.lock",
        "uv.lock",
        "pixi.lock",
        "conda-lock.yml",
        "Cargo.lock",
        "composer.lock",
        "Gemfile.lock",
        "go.sum",
        "mix.lock",
        "rebar.lock",
        "pubspec.lock",
        "Podfile.lock",
        "Package.resolved",
        "packages.lock.json",
        "gradle.lockfile",
        "flake.lock",
    }
)
# A folder that holds one of these is a project with a build.
_PROJECT = LOCK_FILES | {
    "package.json",
    "tsconfig.json",
    "pyproject.toml",
    "setup.py",
    "setup.cfg",
    "Cargo.toml",
    "pom.xml",
    "build.gradle",
    "build.gradle.kts",
    "CMakeLists.txt",
    "meson.build",
    "Makefile",
    "go.mod",
    "composer.json",
    "Gemfile",
    "mix.exs",
    "pubspec.yaml",
    "conf.py",
    "node_modules",
}
# Names of files, in lower case: marks of open documents, backups, unfinished downloads, views.
_LEFTOVERS = (
    *("~$*", "~wr*.tmp", "#*?#", "?*~", "?*.bak", "?*.swp", "?*.swo"),
    *("?*.crdownload", "?*.opdownload", "?*.part", "?*.partial", "?*.download"),
    *("desktop.ini", "thumbs.db", "ehthumbs.db"),
)
_VIRTUAL_ENVIRONMENTS = frozenset({"venv", "virtualenv"})


def rule_for(path: Path, is_folder: bool, beside: Collection[str]) -> str | None:
    """Returns the rule that leaves the path out, as "dependencies: node_modules/", or None.

    `beside` holds the names in the same folder.
    """
    name = path.name
    if not is_folder:
        if name in LOCK_FILES:
            return "lock files"
        return "leftovers of programs" if _is_leftover(name) else None
    if name in DEPENDENCIES or name.endswith((".egg-info", ".dist-info")):
        return f"dependencies: {name}/"
    if name in BUILD_RESULTS and not _PROJECT.isdisjoint(beside):
        return f"build results: {name}/"
    if _is_virtual_environment(path):
        return f"virtual environments: {name}/"
    return None


def is_of_project(name: str) -> bool:
    """Returns True for a name that may decide whether the folders beside it are left out."""
    return name in _PROJECT


def _is_leftover(name: str) -> bool:
    lower = name.lower()
    return any(fnmatchcase(lower, pattern) for pattern in _LEFTOVERS)


def _is_virtual_environment(folder: Path) -> bool:
    """Returns True for a folder with the file that venv writes or the folder that conda makes."""
    if folder.name in _VIRTUAL_ENVIRONMENTS:
        return True
    try:
        return (folder / "pyvenv.cfg").is_file() or (folder / "conda-meta").is_dir()
    except OSError:
        return False
