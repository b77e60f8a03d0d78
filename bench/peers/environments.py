"""An environment for each peer, made once: Python's with pinned requirements, node's with a lock.

Owns: where they lie, making them again when a pin has changed, the settings under which a peer
runs. Nothing is fetched but by pip and npm, and nothing at all while anything is measured.
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


def python_of(peer: str) -> str:
    """The interpreter that has this peer; made first where it is not there yet.

    Raises subprocess.CalledProcessError where pip or npm fails.
    """
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
    """The pins are copied last."""
    done = folder / pins.name
    return done.exists() and done.read_bytes() == pins.read_bytes()


def _node_modules() -> None:
    """Raises FileNotFoundError where node or npm is not there."""
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
    """Nobody is told anything, nothing is fetched, and nothing is written outside `home`."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
    return {
        **kept,
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
