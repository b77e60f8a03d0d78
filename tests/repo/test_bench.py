"""The benchmark's legs run to their end; the quick profile tries those that call inner parts."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from pydoc_data.topics import topics

from bench.__main__ import LEGS
from tests.kit import life
from tests.kit.patience import LIVES, LONG, all_or
from tests.kit.start import REPO

QUICK = ("ingest", "embed", "rebuild")


def collection(folder: Path) -> Path:
    """Makes a small collection in BEIR's form, because parsing Python's library takes seconds."""
    folder.mkdir()
    rows = [{"_id": name, "text": text} for name, text in itertools.islice(topics.items(), 9)]
    (folder / "corpus.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    question = json.dumps({"_id": "question", "text": "How does a statement bind a name?"})
    (folder / "queries.jsonl").write_text(question, encoding="utf-8")
    (folder / "qrels.tsv").write_text(f"question\t{rows[0]['_id']}\t1\n", encoding="utf-8")
    return folder


def test_legs_run(tmp_path: Path, shared: Path) -> None:
    """The long profile runs every leg, over Python's documentation."""
    env = dict(os.environ)
    if sys.platform == "linux":  # this run's exported model
        env["XDG_CACHE_HOME"] = str(Path(life.led(shared).home) / ".cache")
    legs = all_or(QUICK, LEGS)
    text = [] if LONG else ["--collection", str(collection(tmp_path / "collection"))]
    options = [word for leg in legs for word in ("--only", leg)]
    command = [sys.executable, "-m", "bench", "--quick", *text, *options]
    done = subprocess.run(
        command, cwd=REPO, env=env, capture_output=True, text=True, timeout=LIVES, check=False
    )
    assert done.returncode == 0, done.stderr
    assert [leg for leg in legs if f"({leg} took" not in done.stderr] == []
