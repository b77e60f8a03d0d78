"""Makes an environment for each peer once: Python's with pins, node's with a lock file.

An environment is made anew when a pin changes. Only pip and npm fetch anything, and never during a
measurement.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from bench.measure import ROOT

ENVIRONMENTS = ROOT / ".peers"
_PINS = Path(__file__).parent
_SHARED = {"sqlite-piped": "sqlite"}  # a peer → the peer whose environment it runs in


def python_of(peer: str) -> str:
    """Returns the interpreter with this peer, after making a missing environment.

    Raises subprocess.CalledProcessError if pip or npm fails.
    """
    peer = _SHARED.get(peer, peer)
    pins, folder = _PINS / f"{peer}.txt", ENVIRONMENTS / peer
    if peer == "server-memory":
        _node_modules()
    if not pins.exists():
        return sys.executable
    python = folder / "bin" / "python"
    if not _is_ready(folder, pins):
        print(f"Installing {peer}…", file=sys.stderr, flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "-r", str(pins)], check=True)
        shutil.copy(pins, folder / pins.name)
    return str(python)


def _is_ready(folder: Path, pins: Path) -> bool:
    """Returns whether the environment is complete: the pins are copied last."""
    done = folder / pins.name
    return done.exists() and done.read_bytes() == pins.read_bytes()


def _node_modules() -> None:
    """Installs the locked packages; raises FileNotFoundError without node or npm."""
    folder, pins = ENVIRONMENTS / "server-memory", _PINS / "server-memory" / "package-lock.json"
    if _is_ready(folder, pins):
        return
    print("Installing server-memory…", file=sys.stderr, flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    shutil.copy(pins.parent / "package.json", folder)
    subprocess.run(["node", "--version"], check=True, stdout=subprocess.DEVNULL)
    shutil.copy(pins, folder)
    try:
        subprocess.run(["npm", "ci", "--silent", "--ignore-scripts"], cwd=folder, check=True)
    except BaseException:
        (folder / pins.name).unlink()
        raise


def settings(home: Path) -> dict[str, str]:
    """Returns variables that stop telemetry, downloads, and writes outside `home`."""
    inherited = {
        name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ
    }
    return {
        **inherited,
        "HOME": str(home),
        "PYTHONPATH": str(ROOT),
        "ANONYMIZED_TELEMETRY": "False",
        "DO_NOT_TRACK": "1",
        "LANCEDB_LOG": "error",
        "HF_HUB_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "ALLOW_RESOLVE_TRANSFORM": "True",  # txtai: a function of runners/external.py
        "KBPROC_BENCH_NODE_MODULES": str(ENVIRONMENTS / "server-memory" / "node_modules"),
    }
