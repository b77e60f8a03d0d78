"""`python -m tools.changed [BASE]`: prints the tests that a change touches, for pytest.

A change is what git shows since the merge base with main, or since BASE, with files that are not
committed yet. `make changed` runs these tests. It is a choice, in which the nearest tests come
first; `make test` runs all.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

from tests.kit.slow import seconds

ROOT = Path(__file__).parents[1]
MOST_FILES = 12  # files of tests that are chosen by imports
_MOST_SECONDS, _USUAL_SECONDS = 60, 3  # together, and for a file that is not listed as slow
MOST_MENTIONS = 4  # files of tests that name a changed method most often
_PLACES = ("kbproc", "tests", "tools", "bench", "demo")
_GOLDENS = "tests/conversations/test_golden.py"
_IMPORT = re.compile(
    r"^[ \t]*(?:from[ ]+(\.*)([\w.]*)[ ]+import[ ]+(\([^)]*\)|[^\n]*)|import[ ]+([\w.]+))", re.M
)
_OF_CODE = ("tests/house/test_house.py", "tests/house/test_prose.py")

# Prefix of a changed file → tests that no import leads to.
OTHER = {
    "golden/test_context/": ("tests/hooks/test_context.py",),
    "golden/test_conversations/": ("tests/sources/parse/test_conversations.py",),
    "golden/test_transcripts/": ("tests/mcp/test_transcripts.py",),
    "kbproc/surfaces/mcp/": ("tests/mcp/test_transcripts.py",),
    "kbproc/surfaces/hooks/": ("tests/hooks/test_context.py",),
    "kbproc/engine/sources/": ("tests/sources/parse/test_conversations.py",),
    "schemas/": ("tests/calls/test_schemas.py",),
    "clients/typescript/": ("tests/client/test_typescript.py",),
    "contract/": (
        "tests/contract/test_kit.py",
        "tests/contract/test_kbproc.py",
        "tests/contract/test_servers.py",
    ),
    "plugin/": ("tests/setup/test_plugin.py",),
    "bench/": ("tests/house/test_performance.py", "tests/house/test_quality.py"),
    "docs/": ("tests/repo/test_pages.py",),
    "README.md": ("tests/repo/test_pages.py",),
    "SECURITY.md": ("tests/repo/test_pages.py",),
    "pyproject.toml": ("tests/repo/test_licences.py",),
}
# Packages whose changes no golden of a conversation shows.
_UNSEEN = ("client", "contract", "surfaces/mcp", "surfaces/hooks", "surfaces/page")


def main(words: Sequence[str]) -> int:
    base = words[0] if words else ""
    if base and not _git("rev-parse", "--verify", "--quiet", f"{base}^{{commit}}"):
        sys.stderr.write(
            f"BASE={base} is no commit: name a branch, a tag or a hash, such as HEAD\n"
        )
        return 2
    files = changed(base)
    tests, more = chosen(files)
    note = f"{len(files)} changed files: {len(tests)} files or cases of tests"
    if not tests:
        note += "; nothing is to be run, and make test runs all"
    if more:
        note += f"; {more} more files import what changed: make test runs them"
    sys.stderr.write(note + "\n")
    sys.stdout.write("".join(f"{test}\n" for test in tests))
    return 0


def changed(base: str = "") -> list[str]:
    """Returns the paths that differ from the base, and the new ones; deleted ones are not there."""
    since = base or _git("merge-base", "HEAD", "main") or "HEAD"
    paths = _git("diff", "--name-only", "--diff-filter=d", since).splitlines()
    return sorted({*paths, *_git("ls-files", "--others", "--exclude-standard").splitlines()})


def _git(*words: str) -> str:
    command = ["/usr/bin/env", "git", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def chosen(files: Iterable[str]) -> tuple[list[str], int]:
    """Returns the tests to run, and how many nearer or farther files of tests were left out."""
    files = list(files)
    first = [name for name in files if _is_test(name)]
    first += [name for file in files for name in _without_imports(file)]
    near: Counter[str] = Counter()
    for file in files:
        if file.endswith(".py") and file.startswith(_PLACES) and not _is_test(file):
            near.update(nearest(file))
            near.update(mentions(name) if (name := method_of(file)) else ())
    by_imports = [name for name, _ in near.most_common() if name not in first]
    chosen_by_imports = _short(by_imports)
    last = [_GOLDENS] if any(map(_shows_in_goldens, files)) else []
    tests = dict.fromkeys([*first, *chosen_by_imports, *last])
    cases = [name for name in tests if name.partition("::")[0] in tests and "::" in name]
    more = len(by_imports) - len(chosen_by_imports)
    return [name for name in tests if name not in cases], more


def _short(tests: Iterable[str]) -> list[str]:
    """Returns the first tests that may run within a minute, without those that alone take long."""
    slow, rest_s, short = seconds(), _MOST_SECONDS, list[str]()
    for name in tests:
        needed_s = slow.get(name, _USUAL_SECONDS)
        if needed_s <= rest_s and len(short) < MOST_FILES:
            short.append(name)
            rest_s -= needed_s
    return short


def _is_test(name: str) -> bool:
    return name.startswith("tests/") and Path(name).name.startswith("test_")


def _without_imports(file: str) -> Iterator[str]:
    """Yields the tests that a changed file calls for by where it lies."""
    if file.startswith("golden/test_golden/"):
        yield from (_of_golden(Path(file).stem), f"{_GOLDENS}::test_no_stray_files")
    for prefix, tests in OTHER.items():
        if file.startswith(prefix):
            yield from tests
    if file.startswith(_PLACES) and file.endswith(".py"):
        yield from _OF_CODE
    if Path(file).name == "conftest.py" and file != "tests/conftest.py":
        yield str(Path(file).parent)
    if file == "README.md" or Path(file).parent == Path("docs"):
        yield from _of_page(ROOT / file)
    if (name := method_of(file)) is not None:
        yield from _of_method(name)


def _of_page(path: Path) -> Iterator[str]:
    """Yields the test that runs a page's commands, if the quick profile has one."""
    from tests.repo.test_shown import COMMANDS, PAGES, SLOW

    for name in COMMANDS:
        if PAGES[name] == path and name not in SLOW:
            yield f"tests/repo/test_shown.py::test_commands[{name}]"


def method_of(file: str) -> str | None:
    """Returns the method that a file declares, such as doc.get; None for any other file."""
    parts = Path(file).with_suffix("").parts
    if parts[:2] != ("kbproc", "methods") or parts[2:3] == ("calls",):
        return None
    name = ".".join(parts[2:]).removesuffix("_")
    return None if name in {"all", "__init__", "outlines"} or "__init__" in parts else name


def _of_method(name: str) -> Iterator[str]:
    """Yields the examples of the methods and this one's goldens."""
    yield "tests/calls/test_examples.py"
    mark = f'"method":"{name}"'
    for path in sorted((ROOT / "golden" / "test_golden").glob("test_over_pipes*.txt")):
        if mark in path.read_text(encoding="utf-8").replace('": "', '":"'):
            yield _of_golden(path.stem)


def _of_golden(name: str) -> str:
    """Returns the test of a golden in the quick profile, which runs few of them over pipes."""
    from tests.conversations.transcripts import IN_MEMORY

    kind, _, conversation = name.removesuffix("]").partition("[")
    is_piped = kind == "test_over_pipes" and conversation in IN_MEMORY
    return f"{_GOLDENS}::{name.replace(kind, 'test_in_memory') if is_piped else name}"


def mentions(name: str) -> list[str]:
    """Returns the files of tests that name a method most often."""
    texts = {test: text for test, text in _texts().items() if _is_test(test) and not _is_slow(test)}
    counts = Counter({test: text.count(f'"{name}"') for test, text in texts.items()})
    return [test for test, count in counts.most_common(MOST_MENTIONS) if count]


def _is_slow(test: str) -> bool:
    """Returns True for kills, coding agents and the goldens, which imports don't choose."""
    return test.startswith(("tests/breaks", "tests/harnesses", "tests/conversations"))


def _shows_in_goldens(file: str) -> bool:
    """Returns True if a change may show in a conversation that is not one method's alone."""
    own = file.startswith("kbproc/") and file.endswith(".py") and method_of(file) is None
    return own and not file.removeprefix("kbproc/").startswith(_UNSEEN)


# ------------------------------------------------------------------ imports


def nearest(file: str) -> list[str]:
    """Returns the files of tests that import a file or are named for it, its folder's first.

    Where no test imports it, those that import what imports it are returned, and so on.
    """
    folder, stem = folder_of(file), Path(file).stem
    named = [
        name
        for name in _texts()
        if name.startswith((f"{folder}/test_{stem}.", f"{folder}/test_{stem}_"))
    ]
    reached, at = {file}, {file}
    while at:
        at = {other for name in at for other in _importers().get(name, ())} - reached
        reached |= at
        tests = sorted(name for name in at if _is_test(name) and not _is_slow(name))
        if tests:
            return sorted({*tests, *named}, key=lambda name: not name.startswith(f"{folder}/"))
    return named


def folder_of(file: str) -> str:
    """Returns the folder of a module's tests: tests/store for kbproc/engine/store/sql/worker.py."""
    for part in reversed(Path(file).parts[:-1]):
        if (ROOT / "tests" / part).is_dir():
            return f"tests/{part}"
    return "tests"


@cache
def _texts() -> dict[str, str]:
    """Returns each Python file by its path, with its text."""
    paths = [path for place in _PLACES for path in sorted((ROOT / place).rglob("*.py"))]
    return {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in paths}


@cache
def _importers() -> dict[str, set[str]]:
    """Returns path → the files that import it, also in functions."""
    importers: dict[str, set[str]] = {}
    for name, text in _texts().items():
        for module in _imported(text, name):
            importers.setdefault(module, set()).add(name)
    return importers


def _imported(text: str, importer: str) -> Iterator[str]:
    """Yields the paths of the modules that a file imports.

    It reads lines, because trees of all files would take ten seconds.
    """
    for dots, module, listed, alone in _IMPORT.findall(text):
        parents = Path(importer).parts[: -len(dots)] if dots else ()
        base = ".".join([*parents, *filter(None, [module])])
        symbols = re.findall(r"\w+", listed)
        for name in [alone] if alone else [base, *(f"{base}.{symbol}" for symbol in symbols)]:
            path = name.replace(".", "/") + ".py"
            if path in _texts():
                yield path


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
