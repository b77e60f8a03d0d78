"""The TypeScript client compiles, passes its tests, agrees with the goldens, and packs.

Its tests run against kbproc and against scripted servers.

"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kbproc.contract.clients import judge_client
from kbproc.contract.verdicts import verdicts
from tests.kit import llm
from tests.kit.judged import CLIENTS, KIT, all_kept
from tests.kit.patience import LIVES, LONG
from tests.kit.program import program
from tests.kit.shell import environment
from tests.kit.start import REPO

SOURCE = REPO / "clients" / "typescript"
pytestmark = pytest.mark.skipif(shutil.which("npm") is None, reason="node and npm are not here")
WORDS = 40
PACE_SECONDS = 0.02  # between two words, so that an answer is many records


def run(*argv: str, cwd: Path, env: dict[str, str] | None = None) -> str:
    """Returns the command's stdout; raises AssertionError with all output if it fails."""
    done = subprocess.run(
        argv, cwd=cwd, env=env, capture_output=True, text=True, check=False, timeout=LIVES
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def modules() -> Path:
    """Returns the folder of the packages that the client's lock names; npm brings them once."""
    lock = SOURCE / "package-lock.json"
    number = hashlib.sha256(lock.read_bytes()).hexdigest()[:16]
    place = Path(sys.prefix) / "share" / "npm" / number
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent) as folder:
            new = Path(folder) / "new"
            new.mkdir()
            shutil.copy(lock, new)
            shutil.copy(SOURCE / "package.json", new)
            run("npm", "ci", "--silent", "--no-audit", "--no-fund", cwd=new)
            new.rename(place)
    return place / "node_modules"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compiles the client, its tests and examples in a folder of this run."""
    folder = tmp_path_factory.mktemp("typescript")
    ignored = shutil.ignore_patterns("node_modules", "dist", "build")
    shutil.copytree(SOURCE, folder, dirs_exist_ok=True, ignore=ignored)
    (folder / "node_modules").symlink_to(modules())
    for project in (".", "test"):
        run("node_modules/.bin/tsc", "-p", project, cwd=folder)
    return folder


@pytest.fixture
def env(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Returns the environment of a user with a small model and kbproc on the PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    path = f"{folder}:{os.environ['PATH']}"
    with program(folder / "kbproc"):
        yield {**environment(tmp_path), "PATH": path, "KBPROC_REPO": str(REPO)}


def script(question: str) -> list[llm.Step]:
    def pause(reply: llm.Reply) -> None:
        reply.endpoint.released.wait(PACE_SECONDS)

    steps = [step for word in range(WORDS) for step in (llm.say(f"1.{word} "), pause)]
    return [*steps, llm.finish()]


@pytest.fixture
def endpoint() -> Iterator[llm.Endpoint]:
    with llm.endpoint(script) as endpoint:
        yield endpoint


def test_against_kbproc_and_scripted_servers(
    built: Path, env: dict[str, str], endpoint: llm.Endpoint
) -> None:
    """The tests that kill kbproc start the installed program.

    The forked one of tests/kit/program.py answers for some milliseconds after it was killed.
    """
    tests = {path.name.partition(".")[0] for path in (SOURCE / "test").glob("*.test.ts")}
    killing = {"kbproc", "kills"}
    assert tests == killing | {"client", "goldens"}
    limit = f"--test-timeout={round(LIVES * 900)}"  # ms; node names what hangs
    variables = {"KBPROC_TEST_LLM": endpoint.url, "KBPROC_TEST_KILLS": "100" if LONG else "3"}
    installed = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    for names, path in ((killing, installed), (tests - killing, env["PATH"])):
        files = [f"build/test/{name}.test.js" for name in sorted(names)]
        run("node", "--test", limit, *files, cwd=built, env={**env, **variables, "PATH": path})


def test_the_harness_does_what_it_says(built: Path, env: dict[str, str], tmp_path: Path) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "backup.md").write_text("# Backup\n\nTo restore a backup, open its folder.\n")
    output = run(
        "node", str(built / "build/examples/harness.js"), str(folder), cwd=tmp_path, env=env
    )
    assert re.sub(r"\d\.\d{3}", "score", output).splitlines() == [
        "read: 1 files",
        "[score] Backup, lines 1–3",
        "To restore a backup, open its folder. [1]",
        "answer: finished",
        "cancelled: the feed of events",
        "written once: true duplicate: true",
        "a person is asked: hide “Backup” (1 chunk)",
    ]


def example_on(page: Path) -> str:
    """Returns the page's only example."""
    [code] = re.findall(r"```ts\n(.*?)```", page.read_text(), re.S)
    return str(code)


def test_the_page_tells_how_a_project_is_compiled(built: Path, tmp_path: Path) -> None:
    [settings] = re.findall(
        r"```json\n(.*?)```", (REPO / "docs" / "typescript.md").read_text(), re.S
    )
    (tmp_path / "tsconfig.json").write_text(settings)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    shutil.copy(SOURCE / "examples" / "harness.ts", tmp_path)
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "node_modules" / "kbproc").symlink_to(built)
    (tmp_path / "node_modules" / "@types").symlink_to(built / "node_modules" / "@types")
    compiler = str(built / "node_modules" / ".bin" / "tsc")
    run(compiler, "--strict", "--noEmit", cwd=tmp_path)


def test_pages_show_what_runs(built: Path, env: dict[str, str], tmp_path: Path) -> None:
    examples = SOURCE / "examples"
    assert example_on(REPO / "docs" / "typescript.md") == (examples / "harness.ts").read_text()
    assert example_on(SOURCE / "README.md") == (examples / "first.ts").read_text()
    output = run("node", str(built / "build/examples/first.js"), cwd=tmp_path, env=env)
    assert output == "Backup\n"


def test_it_keeps_every_rule_of_a_client(built: Path) -> None:
    """The contract kit judges it with a server that misbehaves as the protocol allows."""
    command = shlex.join(["node", str(built / "build/examples/contract-driver.js"), "{server}"])
    scenes = KIT.conversations("clients")
    findings = [one for scene in scenes for one in judge_client(scene, command, KIT)]
    all_kept("clients/typescript", "client", verdicts(CLIENTS, findings))


def test_what_is_packed_is_what_a_program_needs(built: Path) -> None:
    packages: list[Any] = json.loads(
        run("npm", "pack", "--json", "--ignore-scripts", "--dry-run", cwd=built)
    )
    names = {file["path"] for file in packages[0]["files"]}
    modules = {path.stem for path in (SOURCE / "src").glob("*.ts")}
    compiled = {f"dist/{name}.{end}" for name in modules for end in ("js", "d.ts")}
    assert names == {*compiled, "package.json", "README.md"}
    package = json.loads((SOURCE / "package.json").read_text())
    assert package.keys().isdisjoint({"dependencies", "peerDependencies"})
    assert package["devDependencies"].keys() == {"typescript", "@types/node"}
