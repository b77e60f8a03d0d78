"""`python -m bench.room FOLDER` measures how a store grows, and writes docs/operations.md's table.

It adds a copy of the folder's Markdown files to a store, edits, deletes and purges a tenth of them,
and weighs the store's files after each step and after store.compact. The vectors are the hash
embedder's, with as many numbers as those of the default model.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench import corpus
from bench.measure import KBPROC, ROOT, aligned
from tools.generate.outputs import with_blocks

PAGE = ROOT / "docs" / "operations.md"
RESULTS = ROOT / "bench" / "room.json"
_PARTS = ("log", "sources", "vectors", "views")
_EDITS = 5


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.room", description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", help="without it only the page is written")
    options = parser.parse_args()
    if options.folder is not None:
        with tempfile.TemporaryDirectory(prefix="kbproc-room-", dir="/var/tmp") as place:
            results = _measured(options.folder, Path(place))
        RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(), encoding="utf-8")
    return 0


def page() -> str:
    """Returns the page with the sizes that were measured."""
    blocks = {"room": _table(json.loads(RESULTS.read_text(encoding="utf-8")))}
    return with_blocks(PAGE.read_text(encoding="utf-8"), blocks)


def _measured(folder: Path, place: Path) -> dict[str, Any]:
    files, store = place / "files", place / "store"
    corpus.open_store(store, corpus.HASH).close()
    shutil.copytree(folder, files)
    paths = sorted(files.rglob("*.md"))
    text_bytes = sum(path.stat().st_size for path in paths)
    rows = [
        {"step": step, **{part: _bytes(store / part) for part in _PARTS}}
        for step in _steps(files, paths, store)
    ]
    return {"files": len(paths), "text": text_bytes, "rows": rows}


def _steps(files: Path, paths: list[Path], store: Path) -> Iterator[str]:
    """Yields what has happened to the store, after each step."""
    chance = random.Random(68)
    tenth = len(paths) // 10
    _kbproc(store, "add", files)
    _kbproc(store, "doc", "wait")
    yield f"all {len(paths):,} files are added"
    for edit in range(_EDITS):
        for path in chance.sample(paths, tenth):
            _edit(path, chance)
        _kbproc(store, "add", files)
        if edit == 0:
            yield f"a line is added to each of {tenth} files"
    _kbproc(store, "doc", "wait")
    yield f"the same {_EDITS - 1} times more, each time to a tenth"
    for path in chance.sample(paths, tenth):
        path.unlink()
    _kbproc(store, "add", files, "--prune", "--yes")
    yield f"{tenth} files are removed, and their documents by `--prune`"
    ids = [str(row["id"]) for row in _kbproc(store, "doc", "list", "--limit", "1000")]
    _kbproc(store, "store", "purge", *chance.sample(ids, tenth), "--yes")
    yield f"{tenth} documents are purged"
    _kbproc(store, "store", "compact", "2099-01-01", "--yes")
    yield "`kbproc store compact 2099-01-01`"


def _edit(path: Path, chance: random.Random) -> None:
    """Adds a sentence of two of the file's own words after one of its paragraphs."""
    paragraphs = path.read_text(encoding="utf-8").split("\n\n")
    words = " ".join(chance.sample(path.read_text(encoding="utf-8").split(), 2))
    paragraphs.insert(chance.randrange(1, len(paragraphs) + 1), f"Later we added {words}.")
    path.write_text("\n\n".join(paragraphs), encoding="utf-8")


def _kbproc(store: Path, *words: str | Path) -> Any:
    """Returns the data of a command's answer."""
    command = [*KBPROC, "--store", str(store), "--format", "json", *map(str, words)]
    done = subprocess.run(command, check=True, capture_output=True)
    return json.loads(done.stdout)["data"]


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _table(results: dict[str, Any]) -> str:
    head = ["after", *_PARTS, "together"]
    sizes = [[row["step"], *(row[part] for part in _PARTS)] for row in results["rows"]]
    rows = [
        [step, *(f"{size / 1e6:.1f} MB" for size in (*parts, sum(parts)))] for step, *parts in sizes
    ]
    text = f"{results['files']:,} files of Markdown, {results['text'] / 1e6:.1f} MB of text:\n\n"
    return text + aligned([head, *rows])


if __name__ == "__main__":
    sys.exit(main())
