"""Coding agents, installed by `make harnesses`, each with a scripted model.

An agent runs in its own network namespace, which has only the loopback and the model; its home,
its settings and its project are folders of the test.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import psutil

from tests.kit.patience import PATIENCE, until
from tests.kit.processes import processes_in
from tests.kit.scripted import Call, Model, serving
from tests.kit.start import REPO

INSTALLED = REPO / ".harnesses"
PROGRAMS = INSTALLED / "node_modules" / ".bin"
INSTALL = "make harnesses"
PATIENT = "20000"  # milliseconds for a hook
PORT = 8080  # the model's, in every namespace
URL = f"http://127.0.0.1:{PORT}"
KEY = "scripted"
_NAMESPACE = ["unshare", "--net", *([] if os.geteuid() == 0 else ["--map-root-user"])]
# Brings the loopback up, hands a socket on it to the test, and becomes the agent.
_ENTER = f"""
import fcntl, os, socket, struct, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any:
    fcntl.ioctl(any, 0x8914, struct.pack("16sh14x", b"lo", 1))
with socket.socket(fileno=int(sys.argv[1])) as control:
    with socket.create_server(("127.0.0.1", {PORT})) as listening:
        socket.send_fds(control, [b"."], [listening.fileno()])
os.execvp(sys.argv[2], sys.argv[2:])
"""
# Records the start times of `kbproc mcp`; a shared cache keeps exported models.
_KBPROC = """#!/bin/sh
[ "$1" = mcp ] && date +%s.%N >> "$0.started"
export PYTHONPATH={path} XDG_CACHE_HOME={cache}
exec {python} -m kbproc "$@"
"""


class Places(NamedTuple):
    """The folders of one agent, and the command that starts its kbproc."""

    home: Path
    project: Path
    kbproc: Path

    def write(self, path: str, text: str) -> None:
        file = self.home / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


class Harness(NamedTuple):
    """A coding agent. `program`: its path. `command`: its arguments. `client`: its name for
    `kbproc mcp install`, or None if it has no settings. `prepare`: writes its own settings and
    returns its environment. `is_prefixed`: its model sees tool names prefixed by the server's.
    """

    program: Path
    command: tuple[str, ...]
    prepare: Callable[[Places], dict[str, str]]
    client: str | None = None
    is_prefixed: bool = True


def _claude(places: Places) -> dict[str, str]:
    approved = json.dumps({"enabledMcpjsonServers": ["kbproc"]})
    settings = places.project / ".claude" / "settings.local.json"
    settings.parent.mkdir()
    settings.write_text(approved)
    return {
        "ANTHROPIC_BASE_URL": URL,
        "ANTHROPIC_API_KEY": KEY,
        "CLAUDE_CONFIG_DIR": str(places.home / ".claude"),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "ENABLE_TOOL_SEARCH": "false",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_TELEMETRY": "1",
    }


_CODEX = f"""model = "scripted"
model_provider = "scripted"
check_for_update_on_startup = false
mcp_optional_startup_grace_ms = 10000

[analytics]
enabled = false

[model_providers.scripted]
name = "scripted"
base_url = "{URL}/v1"
env_key = "SCRIPTED_KEY"
wire_api = "responses"
"""


def _codex(places: Places) -> dict[str, str]:
    places.write(".codex/config.toml", _CODEX)
    return {"CODEX_HOME": str(places.home / ".codex"), "SCRIPTED_KEY": KEY}


_OPENCODE = {
    "autoupdate": False,
    "share": "disabled",
    "model": "scripted/scripted",
    "provider": {
        "scripted": {
            "npm": "@ai-sdk/openai-compatible",
            "name": "scripted",
            "options": {"baseURL": f"{URL}/v1", "apiKey": KEY},
            "models": {"scripted": {"name": "scripted"}},
        }
    },
}


def _opencode(places: Places) -> dict[str, str]:
    places.write(".config/opencode/opencode.json", json.dumps(_OPENCODE))
    return {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"}


def _gemini(places: Places) -> dict[str, str]:
    settings = {
        "general": {"disableAutoUpdate": True, "enableAutoUpdate": False},
        "privacy": {"usageStatisticsEnabled": False},
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "telemetry": {"enabled": False},
    }
    places.write(".gemini/settings.json", json.dumps(settings))
    return {
        "GEMINI_API_KEY": KEY,
        "GOOGLE_GEMINI_BASE_URL": URL,
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
    }


_OPENAI = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": f"{URL}/v1", "OPENAI_MODEL": "scripted"}


def _qwen(places: Places) -> dict[str, str]:
    settings = {
        "general": {"disableAutoUpdate": True, "enableAutoUpdate": False},
        "privacy": {"usageStatisticsEnabled": False},
        "security": {"auth": {"selectedType": "openai"}},
        "telemetry": {"enabled": False},
        "tools": {"toolSearch": {"enabled": False}},
    }
    places.write(".qwen/settings.json", json.dumps(settings))
    return _OPENAI


def _library(places: Places) -> dict[str, str]:
    return {**_OPENAI, "OPENAI_AGENTS_DISABLE_TRACING": "1"}


def _driver(name: str) -> Harness:
    """Returns a harness for one of our programs that drives an agent's library."""
    program = REPO / "tests" / "harnesses" / "drivers" / name
    return Harness(
        program=INSTALLED / "venv" / "bin" / "python",
        command=(str(program),),
        prepare=_library,
        is_prefixed=False,
    )


HARNESSES = {
    "Claude Code": Harness(
        program=PROGRAMS / "claude",
        command=("--print", "go", "--model", "sonnet", "--allowedTools", "mcp__kbproc,Bash"),
        prepare=_claude,
        client="claude-code",
    ),
    "Codex": Harness(
        program=PROGRAMS / "codex",
        command=(
            "exec",
            "--skip-git-repo-check",
            "--dangerously-bypass-approvals-and-sandbox",
            "go",
        ),
        prepare=_codex,
        client="codex",
    ),
    "opencode": Harness(
        program=PROGRAMS / "opencode",
        command=("run", "go"),
        prepare=_opencode,
        client="opencode",
    ),
    "Gemini CLI": Harness(
        program=PROGRAMS / "gemini",
        command=("--prompt", "go", "--yolo", "--model", "gemini-2.5-flash"),
        prepare=_gemini,
        client="gemini",
    ),
    "Qwen Code": Harness(
        program=PROGRAMS / "qwen",
        command=("--prompt", "go", "--yolo"),
        prepare=_qwen,
        client="qwen",
    ),
    "openai-agents": _driver("openai_agents.py"),
    "pydantic-ai": _driver("pydantic_agent.py"),
    "FastMCP": _driver("fastmcp_agent.py"),
    "Inspector": _driver("inspector_agent.py"),
}


def missing(name: str) -> str | None:
    """Returns why this harness cannot run here, or None."""
    if not HARNESSES[name].program.exists():
        return f"{name} is not here; `{INSTALL}` installs it"
    return None if _can_enter() else "there are no network namespaces here"


@functools.cache
def _can_enter() -> bool:
    available = sys.platform == "linux" and shutil.which(_NAMESPACE[0]) is not None
    return available and subprocess.run([*_NAMESPACE, "true"], check=False).returncode == 0


class Agent:
    """One run of a harness. `server`: kbproc's command, if the harness has no settings."""

    def __init__(
        self, harness: Harness, places: Places, script: Sequence[Call], server: Sequence[str]
    ) -> None:
        self.model = Model(script, is_prefixed=harness.is_prefixed)
        self.places = places
        self._command = [str(harness.program), *harness.command, *server]
        self._file = (places.home / "output").open("w+b")

    @contextlib.contextmanager
    def running(self, env: dict[str, str]) -> Iterator[Agent]:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.settimeout(PATIENCE)
        enter = [sys.executable, "-IS", "-c", _ENTER, str(theirs.fileno())]
        self.started = time.time()
        self.process = subprocess.Popen(
            [*_NAMESPACE, *enter, *self._command],
            cwd=self.places.project,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=self._file,
            stderr=subprocess.STDOUT,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
        theirs.close()
        with ours:
            fds = socket.recv_fds(ours, 1, 1)[1]
        assert fds, self.output()
        try:
            with serving(self.model, socket.socket(fileno=fds[0])):
                yield self
                self.model.check()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(PATIENCE)
            self._file.close()

    def finish(self, *, is_whole: bool = True) -> list[str]:
        """Waits for the agent's end; returns the results. `is_whole`: the script must be done."""
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the agent goes on; {self.output()}") from None
        self.model.check()
        assert self.model.is_finished or not is_whole, f"{self.model.report()}\n{self.output()}"
        return self.model.results

    def seconds_to_tools(self, *, of_kbproc: bool = False) -> float:
        """Returns the seconds from the agent's start, or its kbproc's, to the first tool offer."""
        assert self.model.first_offer is not None, self.output()
        began = self.started
        if of_kbproc:
            moments = Path(f"{self.places.kbproc}.started").read_text().split()
            began = min(moment for moment in map(float, moments) if moment >= self.started)
        return self.model.first_offer - began

    def output(self) -> str:
        """Returns the last 4,000 characters of the agent's output."""
        return (self.places.home / "output").read_text(errors="replace")[-4000:]


_BARE = {"PATH": "/usr/bin:/bin"}


class Desk:
    """A folder with one store and the agents that use it; it ends them all."""

    def __init__(self, folder: Path, cache: Path) -> None:
        self.folder = folder
        self.store = folder / "store"
        self.kbproc = folder / "bin" / "kbproc"
        self.kbproc.parent.mkdir()
        self.kbproc.write_text(_KBPROC.format(path=REPO, cache=cache, python=sys.executable))
        self.kbproc.chmod(0o755)
        self._count = 0

    @contextlib.contextmanager
    def agent(
        self,
        name: str,
        script: Sequence[Call],
        *flags: str,
        files: Mapping[str, str] = {},
        prompt: str | None = None,
    ) -> Iterator[Agent]:
        """Runs an agent. `flags`: for `kbproc mcp`. `files`: in the agent's project folder.

        `prompt`: what the person types, with kbproc's hooks installed.
        """
        harness = HARNESSES[name]
        self._count += 1
        home = self.folder / f"home{self._count}"
        places = Places(home, home / "project", self.kbproc)
        places.project.mkdir(parents=True)
        for path, text in files.items():
            places.write(f"project/{path}", text)
        env = {
            "PATH": f"{self.kbproc.parent}:{PROGRAMS}:/usr/bin:/bin",
            "HOME": str(home),
            "LANG": "C.UTF-8",
            **harness.prepare(places),
        }
        server: list[str] = []
        if harness.client is None:
            server = [str(self.kbproc), "mcp", "--store", str(self.store), *flags]
        else:
            self.run("mcp", "install", harness.client, "--yes", *flags, cwd=places.project, env=env)
        if prompt is not None:
            harness = self._hooked(harness, prompt, places, env)
        with Agent(harness, places, script, server).running(env) as agent:
            yield agent

    def _hooked(
        self, harness: Harness, prompt: str, places: Places, env: Mapping[str, str]
    ) -> Harness:
        """Installs the hooks; returns the harness with this prompt."""
        assert harness.client is not None
        hooks = ("hook", "install", harness.client, "--yes", "--store", str(self.store))
        self.run(*hooks, "--deadline-ms", PATIENT, cwd=places.project, env=env)
        # Before an act a hook has 300 ms, which a busy machine needs for its process alone.
        for file in places.home.rglob("*"):
            if file.suffix in {".json", ".toml"} and " hook tool" in (text := file.read_text()):
                file.write_text(text.replace(" hook tool", f" hook tool --deadline-ms {PATIENT}"))
        words = [prompt if word == "go" else word for word in harness.command]
        trust = ["--dangerously-bypass-hook-trust"] if harness.client == "codex" else []
        return harness._replace(command=(*words[:1], *trust, *words[1:]))

    def kbprocs(self, beginning: str = "") -> list[int]:
        """Returns the pids of kbproc processes whose arguments start with `beginning`."""
        processes = processes_in(self.folder).items()
        return [pid for pid, command in processes if f" -m kbproc{beginning}" in command]

    def servers(self) -> list[int]:
        """Returns the pids of `kbproc mcp`."""
        return self.kbprocs(" mcp ")

    def clients(self) -> list[int]:
        """Returns the pids of the agents that have a server."""
        return [psutil.Process(pid).ppid() for pid in self.servers()]

    def run(self, *argv: str, cwd: Path | None = None, env: Mapping[str, str] = _BARE) -> str:
        """Runs a command that must succeed; returns its stdout."""
        done = subprocess.run(
            [self.kbproc, *argv],
            cwd=cwd or self.folder,
            env={"HOME": str(self.folder), "KBPROC_STORE": str(self.store), **env},
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def end(self) -> None:
        """Waits until no process names the folder."""
        until(lambda: not processes_in(self.folder), "the end of all processes")
