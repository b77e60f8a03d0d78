"""`python -m bench.models FOLDER`: measures size, speed and quality of each embedding model.

FOLDER holds collections in BEIR form. Writes kbproc/engine/models/measured.json, which model.list
shows. Speed is that of one thread.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from bench.measure import ROOT
from bench.wire_legs import models as cache
from kbproc.base.pipes import leave
from kbproc.engine.models.catalogue import KNOWN_MODELS, Measurement, load
from kbproc.engine.models.interface import ModelSpec
from kbproc.engine.models.weights import installed_folder

OUTPUT = ROOT / "kbproc" / "engine" / "models" / "measured.json"
SETS = ("product-docs", "xquad/en", "xquad/de", "xquad/es", "xquad/zh")
_QUESTIONS = 400
_TEXTS = 100


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.models", description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    measured = {name: _measured(name, folder) for name in KNOWN_MODELS}
    OUTPUT.write_bytes(msgspec.json.format(msgspec.json.encode(measured), indent=1) + b"\n")
    return 0


def _measured(name: str, folder: Path) -> Measurement:
    embedder = load(ModelSpec(name=name), cache())
    files = installed_folder(name).iterdir()
    texts = [json.loads(line)["text"] for line in (folder / SETS[0] / "corpus.jsonl").open("rb")][
        :_TEXTS
    ]
    embedder.embed(texts[0])
    begun = time.perf_counter()
    for text in texts:
        embedder.embed(text)
    speed = len(texts) / (time.perf_counter() - begun)
    measured = Measurement(
        size_bytes=sum(file.stat().st_size for file in files if file.suffix != ".ort"),
        texts_per_second=round(speed, 1),
        ndcg_at_10={one: _ndcg(name, folder / one) for one in SETS},
    )
    print(name, measured, flush=True)
    return measured


def _ndcg(name: str, collection: Path) -> float:
    command = [sys.executable, "-m", "kbproc", "eval", str(collection), "--model", name]
    more = ["--questions", str(_QUESTIONS), "--format", "json"]
    done = subprocess.run([*command, *more], stdout=subprocess.PIPE, check=True)
    data: dict[str, Any] = json.loads(done.stdout)["data"]
    return round(data["modes"]["vector"]["ndcg_at_10"]["mean"], 3)


if __name__ == "__main__":
    leave(main())
