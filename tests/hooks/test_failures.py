"""A hook ends in time with exit code 0 and no output in every failure."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import PIPE

import pytest

from kbproc.engine.log.lease import identity
from kbproc.engine.store import hook_log
from kbproc.engine.store.hook_log import HookFailure
from kbproc.surfaces.hooks import memory
from kbproc.surfaces.hooks.memory import Memory, SessionMemory
from kbproc.surfaces.hooks.report import answer_lines, read_report, report_line
from tests.kit.faults import faults_of, note
from tests.kit.hooks import Answered, Project
from tests.kit.patience import PATIENCE, longer
from tests.kit.processes import Crowd
from tests.kit.start import start
from tests.kit.world import filled

QUESTION = "How do I install git from source?"

# Thinned, because not every machine can mount a read-only disk.
compared = faults_of("hooks", thinned=True)


def noted(project: Project, failure: str) -> None:
    """Notes a failure at which the hook ended with exit code 0 and no output."""
    log = "the store's hook log tells it" if project.problems() else "nothing is logged"
    note("hooks", failure, f"exit 0, no output; {log}")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return filled(tmp_path_factory.mktemp("world"))


@pytest.fixture
def project(tmp_path: Path, world: Path) -> Project:
    shutil.copytree(world / "store", tmp_path / "store")
    return Project(tmp_path)


def missing(project: Project) -> None:
    shutil.rmtree(project.store)


def emptied(project: Project) -> None:
    shutil.rmtree(project.store)
    project.store.mkdir()


def damaged_log(project: Project) -> None:
    path = next((project.store / "log").iterdir())
    data = path.read_bytes()
    path.write_bytes(data[:50] + b"x" + data[51:])
    shutil.rmtree(project.store / "views")


def damaged_settings(project: Project) -> None:
    (project.store / "store.toml").write_text("format = [")


def file_for_folder(project: Project) -> None:
    (project.store / "hooks").write_text("no folder")


def link_for_folder(project: Project) -> None:
    (project.folder / "elsewhere").mkdir()
    (project.store / "hooks").symlink_to(project.folder / "elsewhere")


def untrusted_link(project: Project) -> None:
    link = project.folder / ".kbproc.toml"
    link.write_text(link.read_text() + "# changed\n")


def broken_link(project: Project) -> None:
    (project.folder / ".kbproc.toml").write_text("store = [")


def unknown_kb(project: Project) -> None:
    Project(project.home.parent, kb="nowhere")


# Failure → what spoils the store, and what the hook log says; None where there is no log.
FAILURES: dict[str, tuple[Callable[[Project], None], str | None]] = {
    "the store is missing": (missing, None),
    "the store's folder is empty": (emptied, None),
    "the log is damaged, and the projections are gone": (damaged_log, "log"),
    "store.toml is damaged": (damaged_settings, "store.toml"),
    "a file lies in the place of the hooks' folder": (file_for_folder, None),
    "a symlink lies in the place of the hooks' folder": (link_for_folder, None),
    "the folder's link is not trusted": (untrusted_link, None),
    "the folder's link is damaged": (broken_link, None),
    "the knowledge base does not exist": (unknown_kb, "nowhere"),
}
# Event of a client → a part of its line in the hook log.
INPUTS = {
    b"": "no JSON object",
    b"\xff\xfe": "no JSON object",
    b"[1]": "no JSON object",
    b"{" * 100_000: "no JSON object",
    b'{"prompt": 7}': "prompt",
    b'{"hook_event_name": "SessionStart", "prompt": "x"}': "SessionStart",
    b'{"cwd": "/\\u0000"}': "cwd",
    b'{"session_id": "' + b"x" * 5000 + b'"}': "session_id",
}


@pytest.mark.parametrize("name", FAILURES)
@pytest.mark.parametrize("event", ["prompt", "session-start"])
def test_a_store_that_fails(project: Project, name: str, event: str) -> None:
    spoil, problem = FAILURES[name]
    spoil(project)
    answer = project.hook(event, prompt=QUESTION)
    assert answer == (0, b"", b"")
    if problem is not None:
        assert any(problem in one for one in project.problems()), project.problems()
    assert not (project.folder / "elsewhere" / "sessions").exists()
    noted(project, name)


@pytest.mark.parametrize("stdin", INPUTS, ids=lambda stdin: stdin[:20].decode("latin-1"))
def test_an_event_that_can_t_be_read(project: Project, stdin: bytes) -> None:
    assert project.hook("prompt", stdin=stdin) == (0, b"", b"")
    assert len(project.problems()) == 1 and INPUTS[stdin] in project.problems()[0]
    noted(project, "the event can't be read")


@pytest.mark.parametrize(
    "argv",
    [["Prompt"], ["prompt", "--bogus"], ["prompt", "--tokens", "x"], ["prompt", "--quote", "all"]],
)
def test_a_command_line_that_means_nothing(project: Project, argv: list[str]) -> None:
    event, *flags = argv
    assert project.hook(event, *flags, prompt=QUESTION) == (0, b"", b"")
    noted(project, "the command line has an unknown event or flag")


def test_a_stopped_owner(project: Project, tmp_path: Path) -> None:
    with Crowd(tmp_path, project.store) as crowd:
        owner = crowd.join()
        os.kill(owner.pid, signal.SIGSTOP)
        try:
            assert project.ask(QUESTION) == (0, b"", b"")
            assert project.ask(QUESTION, **CURSOR) == (0, b"{}\n", b"")
        finally:
            os.kill(owner.pid, signal.SIGCONT)
        assert "is stopped" in project.problems()[0]
        noted(project, "the owner is stopped")
        assert "[Git Admin Guide" in project.ask(QUESTION).context


# Cursor notes no output as a failure.
CURSOR = {"hook_event_name": "beforeSubmitPrompt"}
CURSOR_ACT = {"hook_event_name": "preToolUse", "tool_input": {"command": "git push"}}
REACHING = "reaching the process that has the store open"
USUAL_S = 1.2  # enough on a usual machine for a hook to come far; see `longer`


def milliseconds(seconds: float) -> str:
    return f"{min(round(seconds * 1000), 60_000)}"


def test_an_owner_that_never_answers(project: Project, tmp_path: Path) -> None:
    """A process listens at the store's socket, and says nothing."""

    def is_noted(ms: str) -> bool:
        assert project.ask(QUESTION, "--deadline-ms", ms) == (0, b"", b"")
        act = project.hook("tool", "--deadline-ms", ms, **CURSOR_ACT)
        assert act.out in {b"", b"{}\n"}
        problem = f"did not end within {ms} ms, while it was {REACHING}"
        return bool(act.out) and problem in project.problems()[-1]

    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(project.store / "kbproc.sock"))
        silent.listen()
        longer(lambda seconds: is_noted(milliseconds(seconds)), bool, USUAL_S)
    noted(project, "the owner never answers")


def test_a_store_that_opens_too_slowly_is_told_of_once(project: Project) -> None:
    """Another process has the lease and does not listen as yet: as if opening took for ever."""

    def four(seconds: float) -> list[Answered]:
        ms = milliseconds(seconds)
        sessions = (f"one in {ms}", f"one in {ms}", f"two in {ms}")
        answers = [project.ask(QUESTION, "--deadline-ms", ms, session_id=one) for one in sessions]
        return [*answers, project.ask(QUESTION, "--deadline-ms", ms, **CURSOR)]

    def all_came_to_opening(answers: list[Answered]) -> bool:
        return all("which no process has open" in one for one in project.problems()[-4:])

    with (project.store / "lock").open("w") as lease:
        fcntl.flock(lease, fcntl.LOCK_EX)
        lease.write(f"{os.getpid()}\n{identity(project.store)}\nkbproc.sock\n")
        lease.flush()
        first, second, other, cursor = longer(four, all_came_to_opening, USUAL_S)
    answer = json.loads(first.out)
    assert "no process has the store open" in answer["systemMessage"]
    assert answer["hookSpecificOutput"]["hookEventName"] == "UserPromptSubmit"
    assert "kbproc search" in first.context and first.out == other.out and second.out == b""
    assert cursor.out == b"{}\n"
    assert "[Git Admin Guide" in project.ask(QUESTION).context


def ended(process: subprocess.Popen[bytes]) -> None:
    """Waits until the hook has ended, whose stdin stays open, with exit code 0 and no output."""
    assert process.wait(PATIENCE) == 0
    assert process.stdin and process.stdout and process.stdout.read() == b""
    process.stdin.close()
    process.stdout.close()


def test_a_client_that_keeps_stdin_open(project: Project) -> None:
    def problems(seconds: float) -> list[str]:
        ms = milliseconds(seconds)
        argv = ["-m", "kbproc", "hook", "prompt", "--deadline-ms", ms]
        ended(start(argv, cwd=project.folder, env=project.env, stdin=PIPE, stdout=PIPE))
        return project.problems()

    assert "reading the event" in longer(problems, bool, USUAL_S)[0]
    noted(project, "the client writes no event, and keeps stdin open")


def test_the_deadline_counts_from_the_start_of_the_process(project: Project) -> None:
    """A shell that becomes the hook after its deadline stands for a slow start of Python.

    With any time, the hook would come to read its event, and note that.
    """
    ms = milliseconds(USUAL_S)
    command = f"sleep {USUAL_S}; exec {sys.executable} -m kbproc hook prompt --deadline-ms {ms}"
    process = subprocess.Popen(
        ["sh", "-c", command], cwd=project.folder, env=project.env, stdin=PIPE, stdout=PIPE
    )
    ended(process)
    assert project.problems() == []


def test_a_disk_that_is_read_only(project: Project) -> None:
    command = [sys.executable, "-m", "kbproc", "hook", "prompt", "--deadline-ms", "60000"]
    mounts = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"'
    argv = ["unshare", "--mount", "sh", "-c", mounts, str(project.store)]
    if subprocess.run([*argv, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("nothing can be mounted here")
    stdin = json.dumps({"prompt": QUESTION, "cwd": str(project.folder)}).encode()
    done = subprocess.run(
        [*argv, *command], input=stdin, env=project.env, capture_output=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    noted(project, "the disk is read-only")


def test_a_full_disk(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is shown that can't be remembered."""
    opened = Memory(project.store, "one", "here")

    def full(fd: int, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(hook_log, "write_all", full)
    with pytest.raises(OSError, match="No space"):
        opened.keep(SessionMemory(chunk_ids=["a"]))
    assert [path.name for path in (project.store / "hooks").rglob("*")] == ["sessions"]


def test_the_log_and_the_memory_stay_small(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hook_log, "MOST_BYTES", 4000)
    for number in range(200):
        problem = f"{number} " + "x" * 1000
        hook_log.note(project.store, HookFailure(ts="now", event="prompt", problem=problem))
    assert (project.store / "hooks" / "log.ndjson").stat().st_size <= 4000
    assert hook_log.failures(project.store)[-1].problem.startswith("199 ")
    monkeypatch.setattr(memory, "_MOST_SESSIONS", 5)
    for number in range(20):
        Memory(project.store, f"session {number}/..", "here").keep(SessionMemory(chunk_ids=["a"]))
    names = list((project.store / "hooks" / "sessions").iterdir())
    assert len(names) <= 5 and all(path.parent.name == "sessions" for path in names)
    assert {path.stat().st_mode & 0o777 for path in names} == {0o600}
    reopened = Memory(project.store, "session 19/..", "here")
    assert reopened.session().chunk_ids == ["a"]
    reopened.keep_end("then")
    assert reopened.last_end() == "then"


def test_a_report_that_is_cut_off() -> None:
    whole = report_line("store", "/a\nb") + report_line("stage", "x") + answer_lines(b"yes")
    report = read_report(whole)
    assert (report.store, report.stage, report.answer) == ("/a\nb", "x", b"yes")
    assert all(read_report(whole[:end]).answer is None for end in range(len(whole)))


def test_doctor_shows_what_went_wrong(project: Project) -> None:
    argv = ["-m", "kbproc", "doctor", "--format", "json"]

    def findings() -> list[dict[str, str]]:
        process = start(argv, cwd=project.folder, env=project.env, stdout=PIPE, stderr=PIPE)
        listed: list[dict[str, str]] = json.loads(process.communicate()[0])["data"]["findings"]
        return [finding for finding in listed if finding["name"] == "hooks"]

    assert findings() == []
    project.hook("prompt", stdin=b"no JSON")
    (finding,) = findings()
    assert finding["status"] == "warn" and "1 hook of agents" in finding["message"]
