"""`kbproc start` in made homes: it looks, asks once, does, repeats nothing, undoes every byte."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.kit import chats
from tests.kit.patience import PATIENCE, until
from tests.kit.shell import Ran, on_terminal, run
from tests.kit.start import REPO, start

CLAUDE = '{\n  // mine\n  "theme": "dark",\n}\n'


class Home:
    """A home with a folder of notes, and what five agents keep in it."""

    def __init__(self, folder: Path, *, agents: bool) -> None:
        self.home, self.notes = folder / "home", folder / "home" / "notes"
        self.notes.mkdir(parents=True)
        (self.notes / "crane.md").write_text(
            "# The crane\n\n## How is the rope inspected?\n\nEvery March, by two people.\n\n"
            "## Which oil does the gear need?\n\nISO VG 220, four litres.\n"
        )
        (self.notes / "tea.md").write_text(
            "# Tea\n\n## How long does green tea steep?\n\nGreen tea steeps for two minutes.\n"
        )
        (self.notes / ".obsidian").mkdir()
        if agents:
            self._add_agents()

    def _add_agents(self) -> None:
        for name in (".codex", ".cursor", ".gemini", ".config/zed"):
            (self.home / name).mkdir(parents=True)
        logs = self.home / ".claude" / "projects" / "x"
        logs.mkdir(parents=True)
        (self.home / ".claude" / "settings.json").write_text(CLAUDE)
        (self.home / ".cursor" / "mcp.json").write_text("{}")
        for name, folder in (("own", self.notes), ("other", self.home / "elsewhere")):
            log = chats.claude_code().replace(chats.PROJECT.encode(), str(folder).encode())
            (logs / f"{name}.jsonl").write_bytes(log)

    @property
    def env(self) -> dict[str, str]:
        return {"HOME": str(self.home), "PATH": os.environ["PATH"], "COLUMNS": "80"}

    def run(self, *words: str, cwd: Path | None = None) -> Ran:
        return run(words, cwd=cwd or self.notes, env=self.env)

    def data(self, *words: str) -> dict[str, Any]:
        answer = self.run(*words, "--format", "json")
        assert answer.code == 0, answer
        data: dict[str, Any] = json.loads(answer.out)["data"]
        return data

    def tree(self) -> dict[str, bytes | None]:
        return {
            str(path.relative_to(self.home)): path.read_bytes() if path.is_file() else None
            for path in self.home.rglob("*")
        }


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path, agents=True)


def test_a_start_answers_and_its_undo_restores_every_byte(home: Home) -> None:
    before = home.tree()
    plan = home.run("start", "--no-model", "--format", "text")
    assert plan.code == 10
    assert "Claude Code, Codex, Cursor, Gemini CLI, Zed" in plan.out
    assert "a vault of Obsidian" in plan.out
    assert "1 log of claude-code" in plan.out
    assert max(map(len, plan.out.splitlines())) <= 80
    assert home.tree() == before  # a plan writes nothing
    first = home.data("start", "--no-model", "--yes")
    assert [each["error"] for each in first["done"]] == [None] * 7
    answers = {each["question"]: each["text"] for each in first["answers"]}
    assert "Every March" in answers["How is the rope inspected?"]
    assert "two minutes" in answers["How long does green tea steep?"]
    listed = home.data("list")
    assert len(listed) == 3  # two notes and the session of this folder
    assert "kbproc" in (home.home / ".claude" / "settings.json").read_text()

    again = home.data("start", "--no-model", "--yes")
    assert [each["step"] for each in again["done"]] == ["read", "watch", "chats"]
    assert len(home.data("list")) == 3

    assert home.run("start", "--undo").code == 10
    assert "link" in str(home.data("start", "--undo", "--yes")["undone"])
    assert home.tree() == before
    assert json.loads(home.run("start", "--undo", "--yes").err)["error"]["type"] == (
        "resource.not_found"
    )


def test_a_store_of_others_stays_and_only_the_start_is_taken_back(home: Home) -> None:
    (home.home / "mine.md").write_text("# Mine\n\nThe attic key hangs behind the clock.\n")
    assert home.run("add", str(home.home / "mine.md"), cwd=home.home).code == 0
    chosen = ("--no-model", "--no-hooks", "--no-mcp", "--no-skill", "--yes")
    assert len(home.data("start", *chosen)["done"]) == 4
    assert {row["kb"] for row in home.data("list", "--kb", "*")} == {"default", "notes"}
    home.data("start", "--undo", "--yes")
    assert [row["title"] for row in home.data("list", "--kb", "*")] == ["Mine"]
    assert home.data("watch", "list") == []
    assert not (home.notes / ".kbproc.toml").exists()


@pytest.mark.parametrize("words", [(), ("..",), ("/",)])
def test_a_home_folder_is_not_swallowed(tmp_path: Path, words: tuple[str, ...]) -> None:
    home = Home(tmp_path, agents=False)
    answer = home.run("start", *words, "--yes", cwd=home.home)
    error = json.loads(answer.err)["error"]
    assert (answer.code, error["field"]) == (1, "FOLDER")
    assert "kbproc start ~/notes" in error["hint"]


def test_without_agents_a_person_leaves_out_steps_by_number(tmp_path: Path) -> None:
    home = Home(tmp_path, agents=False)
    env = {**home.env, "KBPROC_STORE": str(home.home / "store")}
    code, screen = on_terminal(home.notes, "start", "--no-model", typed="3\n", env=env)
    assert code == 0
    assert "none that kbproc knows" in screen
    assert "The folder is watched" not in screen
    assert "Every March" in screen
    assert home.data("watch", "list", "--store", env["KBPROC_STORE"]) == []


def test_a_step_that_fails_keeps_none_of_the_others_from_being_done(home: Home) -> None:
    (home.home / ".cursor" / "mcp.json").write_text("{broken")
    answer = home.run("start", "--no-model", "--yes", "--format", "text")
    assert answer.code == 3
    assert "Add the MCP server" in answer.out and "failed" in answer.out
    assert "mcp.json" in answer.out
    assert "Every March" in answer.out
    assert (home.home / ".cursor" / "mcp.json").read_text() == "{broken"


def process(home: Home, *words: str) -> subprocess.Popen[str]:
    """Starts `kbproc ARGV...` in the folder, as a process of its own."""
    return start(
        list(words),
        cwd=home.notes,
        env={**home.env, "PYTHONPATH": str(REPO)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_one_agent_in_a_repository_without_a_network(tmp_path: Path) -> None:
    """All steps are done but the model, which needs a network and can follow."""
    home = Home(tmp_path, agents=False)
    (home.home / ".codex").mkdir()
    (home.notes / ".obsidian").rmdir()
    subprocess.run(["git", "init", "-q", str(home.notes)], check=True)
    alone = ["-m", "tests.kit.alone", sys.executable]
    words = ("-m", "kbproc", "start", "--yes", "--format", "json")
    out, err = process(home, *alone, *words).communicate(timeout=PATIENCE)
    data = json.loads(out)["data"]
    assert (data["kind"], data["clients"]) == ("a git repository", ["codex"]), err
    failed = [each["step"] for each in data["done"] if each["error"]]
    assert failed == ["model"]
    assert data["done"][-1]["error"] == "model.unavailable"
    assert "Every March" in data["answers"][0]["text"] + data["answers"][1]["text"]
    assert "kbproc" in (home.home / ".codex" / "config.toml").read_text()
    added = subprocess.run(
        ["git", "-C", str(home.notes), "add", "-A", "--dry-run"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert "store" not in added


HELD = """
import sys, threading
from pathlib import Path
from kbproc.__main__ import main
from kbproc.base import failpoints
sign, log = map(Path, sys.argv[1:3])
def reached(name):
    if name == "log.synced" and sum(path.stat().st_size for path in log.iterdir()) > 40_000:
        sign.touch()
        threading.Event().wait()
failpoints.arm(reached)
sys.argv[1:3] = []
main()
"""


def test_an_interrupted_start_goes_on(tmp_path: Path) -> None:
    home = Home(tmp_path, agents=True)
    for number in range(400):
        text = "\n\n".join(f"Paragraph {n} of file {number}." for n in range(20))
        (home.notes / f"{number:03}.md").write_text(f"# File {number}\n\n{text}\n")
    before = home.tree()
    sign = tmp_path / "sign"
    log = home.home / ".local" / "share" / "kbproc" / "log"
    words = (str(sign), str(log), "start", "--no-model", "--yes")
    begun = process(home, "-c", HELD, *words)
    until(lambda: sign.exists() or begun.poll() is not None, "a part of the folder in the log")
    begun.send_signal(signal.SIGINT)
    out, err = begun.communicate(timeout=PATIENCE)
    assert begun.returncode == 130, (out, err)
    rest = home.data("start", "--no-model", "--yes")
    assert [each["error"] for each in rest["done"]] == [None] * len(rest["done"])
    assert {"watch", "chats", "mcp", "hooks", "skill"} <= {each["step"] for each in rest["done"]}
    assert home.data("status")["documents"] == {"conversation": 1, "markdown": 402}
    home.data("start", "--undo", "--yes")
    assert home.tree() == before
