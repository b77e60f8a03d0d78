"""`python -m bench.graphs FOLDER`: compares kbproc's graph of the default model with torch's.

It prints seconds of each export, texts a second, and the likeness of their vectors, and needs the
extra `export`. FOLDER holds collections in BEIR form. Each text is embedded
by both, one after the other, in processor time of one thread: the ratio holds on a busy machine,
too.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import msgspec
import numpy as np

from kbproc.engine.models import exporting, through_torch
from kbproc.engine.models.export import export
from kbproc.engine.models.interface import DEFAULT_MODEL
from kbproc.engine.models.onnx import META, MODEL, OUTPUT, OnnxEmbedder, read_meta
from kbproc.engine.models.weights import locate

_TEXTS = 100
_TURNS = 3


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.graphs", description=__doc__)
    parser.add_argument("folder", type=Path)
    corpus = parser.parse_args().folder / "product-docs" / "corpus.jsonl"
    texts = [json.loads(line)["text"] for line in corpus.open("rb")][:_TEXTS]
    with tempfile.TemporaryDirectory() as place:
        begun = time.perf_counter()
        written = export(locate(DEFAULT_MODEL), Path(place) / "cache")
        print(f"written: {time.perf_counter() - begun:.1f} s")
        begun = time.perf_counter()
        traced = _traced(written, Path(place) / "traced")
        print(f"traced: {time.perf_counter() - begun:.1f} s")
        embedders = {"written": OnnxEmbedder(written), "traced": OnnxEmbedder(traced)}
        _compare(embedders, texts)


def _traced(written: Path, folder: Path) -> Path:
    """Returns the same model's folder with torch's graph."""
    source, meta = locate(DEFAULT_MODEL).folder, read_meta(written)
    assert source is not None and meta is not None
    (folder / exporting.FULL).mkdir(parents=True)
    full, int8 = exporting.graph_paths(folder)
    model = through_torch.load_sentence(source)
    exporter = through_torch.trace_sentence(model, OUTPUT, full)
    exporting.quantize(full, int8)
    assert int8.name == MODEL
    through_torch.save_tokenizer(model.tokenizer, folder)
    changed = msgspec.structs.replace(meta, precision=f"int8-{exporter}")
    (folder / META).write_bytes(msgspec.json.encode(changed))
    shutil.rmtree(folder / exporting.FULL)
    return folder


def _compare(embedders: dict[str, OnnxEmbedder], texts: list[str]) -> None:
    seconds: dict[str, list[float]] = {name: [] for name in embedders}
    vectors: dict[str, list[np.ndarray]] = {name: [] for name in embedders}
    for text in texts:
        for turn in range(_TURNS):
            for name in list(embedders)[:: 1 if turn % 2 else -1]:
                begun = time.process_time()
                vector = embedders[name].embed(text)
                seconds[name].append(time.process_time() - begun)
                if not turn:
                    vectors[name].append(vector)
    speeds = {name: 1 / statistics.median(took) for name, took in seconds.items()}
    for name, speed in speeds.items():
        print(f"{name}: {speed:.1f} texts a second")
    print(f"ratio: {speeds['written'] / speeds['traced']:.2f}")
    alike = [float(a @ b) for a, b in zip(*vectors.values(), strict=True)]
    print(f"cosine: least {min(alike):.4f}, mean {statistics.fmean(alike):.4f}")


if __name__ == "__main__":
    main()
