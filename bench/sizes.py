"""`python -m bench.sizes` weighs an installation, and writes the sizes into docs/install.md.

It installs this checkout into an empty environment, then the default model with an empty home, and
counts the blocks on the disk as `du -sm` does. A file belongs to the package whose RECORD lists it.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bench.measure import ROOT
from tools.generate.outputs import with_blocks

PAGE = ROOT / "docs" / "install.md"
RESULTS = ROOT / "bench" / "sizes.json"
_MEGABYTE = 1 << 20
_SHOWN = 10  # megabytes of a package from which on it is named
# Packages of the environment itself.
_PYTHONS_OWN = ("pip", "setuptools")


def main() -> int:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as place:
        RESULTS.write_text(json.dumps(_measured(Path(place)), indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(), encoding="utf-8")
    return 0


def page() -> str:
    """Returns the page with the sizes that were measured."""
    blocks = {"sizes": _table(json.loads(RESULTS.read_text(encoding="utf-8")))}
    return with_blocks(PAGE.read_text(encoding="utf-8"), blocks)


def _measured(place: Path) -> dict[str, Any]:
    environment, home = place / "environment", place / "home"
    home.mkdir()
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    pip = [str(environment / "bin" / "pip"), "install", "--quiet", str(ROOT)]
    kbproc = [str(environment / "bin" / "kbproc"), "--store", str(place / "store")]
    words_s = _seconds(pip, home)
    words, parts = _megabytes([environment]), _parts(environment)
    model_s = _seconds([*kbproc, "model", "install"], home)
    both = _parts(environment)
    return {
        "python": platform.python_version(),
        "words": words,
        "words_s": round(words_s),
        "words_parts": parts,
        "meaning": _megabytes([environment]),
        "meaning_s": round(model_s),
        "meaning_parts": {name: size for name, size in both.items() if name not in parts},
        "model": _megabytes([home]),
    }


def _seconds(command: list[str], home: Path) -> float:
    env = {key: value for key, value in os.environ.items() if not key.startswith("XDG_")}
    begun = time.perf_counter()
    subprocess.run(
        command,
        check=True,
        cwd=home,
        env={**env, "HOME": str(home)},
        stdout=subprocess.DEVNULL,
    )
    return time.perf_counter() - begun


def _parts(environment: Path) -> dict[str, int]:
    """Returns the sizes of the large packages, the largest first."""
    (site,) = environment.glob("lib/python*/site-packages")
    sizes = {}
    for package in importlib.metadata.distributions(path=[str(site)]):
        files = [Path(str(file.locate())) for file in package.files or ()]
        sizes[package.metadata["Name"].lower()] = _megabytes(file for file in files)
    large = {name: size for name, size in sizes.items() if size >= _SHOWN or name in _PYTHONS_OWN}
    return dict(sorted(large.items(), key=lambda item: (-item[1], item[0])))


def _megabytes(paths: Iterable[Path]) -> int:
    counted: dict[tuple[int, int], int] = {}
    for path in paths:
        for one in (path, *path.rglob("*")) if path.is_dir() else (path,):
            if one.is_symlink() or one.exists():
                stat = one.lstat()
                counted[stat.st_dev, stat.st_ino] = 512 * stat.st_blocks
    return round(sum(counted.values()) / _MEGABYTE)


def _table(sizes: dict[str, Any]) -> str:
    own = [f"{name} {sizes['words_parts'][name]}" for name in _PYTHONS_OWN]
    words = {name: n for name, n in sizes["words_parts"].items() if name not in _PYTHONS_OWN}

    def listed(parts: dict[str, int]) -> str:
        return ", ".join(f"{name} {size}" for name, size in parts.items() if size >= _SHOWN)

    total = sizes["meaning"] + sizes["model"]
    lines = [
        "| | on disk | seconds | of which packages over 10 MB |",
        "| --- | --- | --- | --- |",
        f"| `pip install .`: search by words | {sizes['words']} MB | {sizes['words_s']} | "
        f"{listed(words)}; the environment's own {' and '.join(own)} |",
        f"| `kbproc model install`: what runs models | {sizes['meaning']} MB in all | "
        f"{sizes['meaning_s']} | {listed(sizes['meaning_parts'])} |",
        f"| the default model, exported, in `~/.local/share/kbproc-models` | {sizes['model']} MB | "
        "| int8 graph, and what onnxruntime makes of it |",
        f"| together | {total} MB | | |",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
