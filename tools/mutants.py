"""`python -m tools.mutants [NAME]`: puts mended defects back one at a time; says what finds each.

The defects are the last ones that were mended in log, store, sharing, watching and history: thirty
when they were chosen, without those whose code has gone since.
This rule chose them, and was written before they were chosen:

1. The packages are kbproc/engine/log, kbproc/engine/store, kbproc/engine/sources/blobs.py and
   packs.py, kbproc/surfaces/sharing, kbproc/knowledge/watching and kbproc/knowledge/history, and
   the folders in which their files lay before.
2. Commits are looked at newest first, from f7f7b4e5 on: `git log --no-merges` of those packages.
   A commit that changes no file tests/**/test_*.py is passed over.
3. A defect is what a commit's message says that the program did wrong: an answer that was wrong or
   missing, data that was lost or revealed, a crash, a wait without end, or use that grew. Features,
   speed, names and moved code are none. A message that names several defects gives several.
4. A defect counts if its mend, or a part of it, lies in a file of those packages. It is put back by
   few edits of today's code, all of which belong to that mend.
5. A defect is skipped, and listed with the reason, if its code is gone, if other code of today
   prevents what went wrong, if only a power failure, a cluster's server or a browser shows it, or
   if a newer defect of the list is the same.

A test finds a defect if it fails with it, passes without it, and fails with it again. Tried are the
files in which the mend's own tests stood, then the tests that are near to the edited files (see
changed.py), then tests/breaks. Each defect is put into a copy of the work tree, so that the tree
itself never changes. What was found is appended to .venv/.mutants, and a run goes on with what is
missing there; after a change of kbproc/ or tests/ that is everything.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
import tomllib
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tools.changed import folder_of, nearest

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "tools" / "mutants.toml"
RESULTS = ROOT / ".venv" / ".mutants"
MOST_SECONDS = 900.0  # for the tests of one defect
# Seconds for what a test waits for. Some defects show as what never comes; and a test whose wait is
# too short for the machine finds nothing, because it fails without the defect as well.
PATIENCE = 30
MOST_TEST_SECONDS = 150
_MOST_NEAR = 6  # files of tests that are chosen by imports
# Workers share files, and the first failure ends the run.
_SIDE_BY_SIDE = ["-x", "-n", "2", "--dist", "loadfile"]
_END_SECONDS = 10.0  # for tests that are ended to clean up


class Edit(NamedTuple):
    """One place where a defect is put back: `old` stands in `file` exactly once."""

    file: str
    old: str
    new: str


class Mutant(NamedTuple):
    name: str
    breaks: str
    commit: str
    tests: list[str]
    edits: list[Edit]

    def problems(self, root: Path = ROOT) -> list[str]:
        """Returns why the edits no longer apply; none if they do."""
        problems = []
        for edit in self.edits:
            path = root / edit.file
            count = path.read_text(encoding="utf-8").count(edit.old) if path.is_file() else 0
            if count != 1:
                first = edit.old.strip().partition("\n")[0]
                problems.append(f"{self.name}: {edit.file} holds {count} times {first!r}")
        return problems

    def steps(self) -> Iterator[list[str]]:
        """Yields files and folders of tests, the likeliest first, none of them twice."""
        files = dict.fromkeys(edit.file for edit in self.edits)
        near = [name for file in files for name in nearest(file)[:_MOST_NEAR]]
        tried: set[str] = set()
        for step in (self.tests, [*map(folder_of, files), *near], ["tests/breaks"]):
            names = [name for name in dict.fromkeys(step) if (ROOT / name).exists()]
            names = [name for name in names if not tried.intersection([name, _folder(name)])]
            tried.update(names)
            yield [name for name in names if _folder(name) not in names]


def _folder(name: str) -> str:
    return str(Path(name).parent)


class Result(NamedTuple):
    """The outcome for one mutant; `found_by` is None if no test failed."""

    found_by: str | None
    seconds: float


def mutants() -> list[Mutant]:
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    return [
        Mutant(**{**row, "edits": [_edit(**edit) for edit in row["edits"]]})
        for row in table["mutants"]
    ]


def _edit(file: str, old: str, new: str) -> Edit:
    """Returns the edit without the newline before a closing quote."""
    return Edit(file, old.removesuffix("\n"), new.removesuffix("\n"))


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # which ends the tests, too
    options = _options()
    every = mutants()
    selected = [one for one in every if options.name in (None, one.name)]
    if not selected:
        sys.stderr.write(f"There is no mutant {options.name}: {', '.join(m.name for m in every)}\n")
        return 2
    if problems := [problem for one in every for problem in one.problems()]:
        sys.stderr.write("\n".join([*problems, "Mend these in tools/mutants.toml.", ""]))
        return 1
    results = _run(selected, options.results, options.seconds)
    missed = [one.name for one in selected if results[one.name].found_by is None]
    sys.stdout.write(f"{len(selected) - len(missed)} of {len(selected)} found\n")
    return 1 if missed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Puts mended defects back, one at a time.")
    parser.add_argument("name", nargs="?", help="one mutant; all without it")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the file to append to")
    parser.add_argument("--seconds", type=float, default=MOST_SECONDS, help="for each mutant")
    return parser.parse_args()


# ------------------------------------------------------------------ results


def _run(selected: list[Mutant], path: Path, seconds: float) -> dict[str, Result]:
    """Returns a result for each mutant, from the file of results or from a run of its tests."""
    tree = _digest_of_tree()
    results: dict[str, Result] = {}
    with Copy() as copy:
        for mutant in selected:
            key = hashlib.sha256(f"{tree} {mutant}".encode()).hexdigest()[:16]
            result = _known(path, key)
            if result is None:
                result = copy.result(mutant, seconds)
                if result.found_by is not None:
                    with path.open("a", encoding="utf-8") as file:
                        file.write(json.dumps([key, mutant.name, *result]) + "\n")
            results[mutant.name] = result
            found_by = result.found_by or "NOT FOUND"
            sys.stdout.write(f"{mutant.name:34} {result.seconds:5.0f} s  {found_by}\n")
            sys.stdout.flush()
    return results


def _known(path: Path, key: str) -> Result | None:
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    for row in map(json.loads, lines):
        if row[0] == key:
            return Result(*row[2:])
    return None


def _digest_of_tree() -> str:
    digest = hashlib.sha256()
    for name in _tracked():
        if name.startswith(("kbproc/", "tests/")):
            digest.update(f"{name}\0".encode() + (ROOT / name).read_bytes())
    return digest.hexdigest()


def _tracked() -> list[str]:
    """Returns the paths of the work tree that git does not ignore and that are there."""
    command = ["/usr/bin/env", "git", "ls-files", "-coz", "--exclude-standard"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return sorted(name for name in done.stdout.split("\0") if (ROOT / name).is_file())


# ------------------------------------------------------------------ the copy


class Copy:
    """A copy of the work tree in a temporary folder, with a Python that imports kbproc from it."""

    def __enter__(self) -> Copy:
        self._folder = tempfile.TemporaryDirectory(prefix="mutants-")
        self.root = Path(self._folder.name) / "tree"
        for name in _tracked():
            target = self.root / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target, follow_symlinks=False)
        self._make_environment()
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    def _make_environment(self) -> None:
        """Makes .venv, which finds the libraries of this one, but not its editable kbproc."""
        folder, here = self.root / ".venv", Path(sys.prefix)
        venv.create(folder, symlinks=True)
        (folder / "share").symlink_to(here / "share")
        for script in (here / "bin").iterdir():
            copy = folder / "bin" / script.name
            if script.is_file() and not copy.exists():
                first, _, rest = script.read_bytes().partition(b"\n")
                if first.startswith(f"#!{here}/".encode()):
                    first = f"#!{folder}/bin/python".encode()
                copy.write_bytes(first + b"\n" + rest)
                copy.chmod(0o755)
        libraries = sysconfig.get_path("purelib")
        own = Path(libraries.replace(str(here), str(folder)))
        (own / "mutants.pth").write_text(f"{self.root}\n{libraries}\n", encoding="utf-8")

    def result(self, mutant: Mutant, most_seconds: float) -> Result:
        """Returns which test finds the defect; the copy is as before then."""
        begun = time.monotonic()
        steps = [step for step in mutant.steps() if step]
        flaky: list[str] = []
        found_by = None
        while steps and found_by is None and time.monotonic() < begun + most_seconds:
            passed_over = [f"--deselect={name}" for name in flaky]
            with self._defect(mutant):
                rest = begun + most_seconds - time.monotonic()
                failed = self._failed([*_SIDE_BY_SIDE, *passed_over, *steps[0]], rest)
            found_by = self._confirmed(mutant, failed) if failed else None
            flaky += failed
            steps = steps if failed else steps[1:]
        return Result(found_by, round(time.monotonic() - begun, 1))

    def _confirmed(self, mutant: Mutant, failed: list[str]) -> str | None:
        """Returns a test that passes without the defect and fails with it once more."""
        flaky = self._failed(failed, MOST_SECONDS)
        sound = [name for name in failed if name not in flaky]
        with self._defect(mutant):
            return next(iter(self._failed(sound, MOST_SECONDS)), None) if sound else None

    @contextlib.contextmanager
    def _defect(self, mutant: Mutant) -> Iterator[None]:
        """Puts the defect into the copy, and takes it out at the end."""
        texts = {edit.file: (self.root / edit.file).read_text("utf-8") for edit in mutant.edits}
        changed = dict(texts)
        for edit in mutant.edits:
            changed[edit.file] = changed[edit.file].replace(edit.old, edit.new)
        try:
            self._write(changed)
            yield
        finally:
            self._write(texts)

    def _write(self, texts: dict[str, str]) -> None:
        """Writes the files, and removes what was compiled, which has their times in seconds."""
        for file, text in texts.items():
            path = self.root / file
            path.write_text(text, encoding="utf-8")
            for compiled in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
                compiled.unlink()

    def _failed(self, arguments: list[str], most_seconds: float) -> list[str]:
        """Returns the tests that fail, as pytest names them; none after `most_seconds`."""
        cache = Path(self._folder.name) / "cache"
        shutil.rmtree(cache, ignore_errors=True)
        python = str(self.root / ".venv" / "bin" / "python")
        limit = f"faulthandler_timeout={MOST_TEST_SECONDS}"
        command = [python, "-m", "pytest", "--tb=short", "-o", f"cache_dir={cache}", "-o", limit]
        with (Path(self._folder.name) / "output").open("w+") as output:
            tests = subprocess.Popen(
                [*command, *arguments],
                cwd=self.root,
                env={**os.environ, "KBPROC_TEST_PATIENCE": str(PATIENCE)},
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                code = tests.wait(most_seconds)
            except subprocess.TimeoutExpired:
                return []
            finally:
                _end(tests)
            failures = cache / "v" / "cache" / "lastfailed"
            if failures.exists():
                return list(json.loads(failures.read_text(encoding="utf-8")))
            if code not in (0, 5):
                output.seek(0)
                raise RuntimeError(f"pytest ended with {code}:\n{output.read()[-4000:]}")
        return []


def _end(tests: subprocess.Popen[bytes]) -> None:
    """Ends the tests if they still run, and lets them end their own processes first."""
    for number in (signal.SIGINT, signal.SIGKILL):
        if tests.poll() is None:
            os.killpg(tests.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                tests.wait(_END_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
