"""Two sides change the settings of clients at once, and each finds its own afterwards."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path
from subprocess import PIPE
from typing import Any

from kbproc.base import json_edit
from kbproc.base.clients import HOOKS, SERVERS, Places
from kbproc.surfaces.setup import hooks, servers
from kbproc.surfaces.setup.servers import ServerEntry
from tests.kit.patience import LONG, PATIENCE
from tests.kit.start import REPO, start

TIMES = 200 if LONG else 8

# kbproc's side: installs the server and the hooks, each time with other flags.
INSTALLER = """
import sys
from pathlib import Path
from kbproc.base.clients import HOOKS, SERVERS, Places
from kbproc.surfaces.setup import hooks, servers
from kbproc.surfaces.setup.change import write_change
from kbproc.surfaces.setup.servers import ServerEntry
root, times, what = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
places = Places(
    home=root / "home", settings=root / "config", data=root / "data", project=root / "project"
)
print("ready", flush=True)
sys.stdin.readline()
def write(plan):
    assert write_change(plan, lambda text: None, done="", agreed=True) == 0
for n in range(times):
    if what == "server":
        for name in SERVERS:
            server = ServerEntry(command=["kbproc", "mcp", "--scopes", str(n)])
            write(lambda: servers.installed(name, server, places))
    else:
        for name in HOOKS:
            write(lambda: hooks.installed(name, {"--deadline-ms": [str(300 + n)]}, places))
"""
# The client's side: saves a setting of its own, in one of the two ways in which programs do.
CLIENT = """
import json, os, sys, tomllib
from pathlib import Path
from kbproc.base import json_edit
paths, times = [Path(path) for path in sys.argv[3:]], int(sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
for n in range(times):
    for path in paths:
        text = path.read_text()
        if path.suffix == ".toml":
            text = f"saved_{n} = true\\n" + text
        else:
            text = json_edit.put(text, (f"saved_{n}",), True)
        if n % 2:
            path.write_text(text)
        else:
            path.with_name("client.new").write_text(text)
            path.with_name("client.new").replace(path)
"""


def places_in(folder: Path) -> Places:
    return Places(
        home=folder / "home",
        settings=folder / "config",
        data=folder / "data",
        project=folder / "project",
    )


def settings_of(path: Path) -> Any:
    text = path.read_text()
    return tomllib.loads(text) if path.suffix == ".toml" else json_edit.parse(text)


def at_once(folder: Path, *sides: tuple[str, list[str]]) -> None:
    """Runs the programs in processes that begin together."""
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPO), "HOME": str(folder / "home")}
    processes = [
        start(
            ["-c", program, str(folder), str(TIMES), *words],
            cwd=folder,
            env=env,
            stdin=PIPE,
            stdout=PIPE,
            text=True,
        )
        for program, words in sides
    ]
    for process in processes:
        assert process.stdout and process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        process.communicate(timeout=PATIENCE * 10)
        assert process.returncode == 0


def test_what_a_client_saves_while_kbproc_installs_stays(tmp_path: Path) -> None:
    places = places_in(tmp_path)
    paths = {name: servers.path_of(name, places) for name in SERVERS}
    for path in paths.values():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("" if path.suffix == ".toml" else "{}")
    at_once(
        tmp_path,
        (INSTALLER, ["server"]),
        (CLIENT, [str(path) for path in paths.values()]),
    )
    for name, path in paths.items():
        saved = {f"saved_{n}" for n in range(TIMES)}
        assert saved <= settings_of(path).keys(), name
        change = servers.installed(name, ServerEntry(command=["kbproc", "mcp"]), places)
        assert change.write()
        assert saved | {SERVERS[name].member} <= settings_of(path).keys()
    assert not list(tmp_path.rglob("*.kbproc-part"))


def test_two_installations_at_once_lose_none_of_both(tmp_path: Path) -> None:
    at_once(tmp_path, (INSTALLER, ["server"]), (INSTALLER, ["hooks"]))
    places = places_in(tmp_path)
    for name, client in SERVERS.items():
        settings = settings_of(servers.path_of(name, places))
        assert str(TIMES - 1) in json.dumps(settings[client.member]["kbproc"]), name
    for name, client_hooks in HOOKS.items():
        settings = settings_of(hooks.path_of(name, places))
        assert settings["hooks"].keys() == set(client_hooks.names)
        assert f"--deadline-ms {299 + TIMES}" in json.dumps(settings["hooks"]), name
    assert len(json.loads((tmp_path / "config/kbproc/mcp-installed.json").read_text())) == len(
        SERVERS
    )
