"""Exports a sentence-transformers model to ONNX with int8 weights, once.

Owns: where exported models are cached, what is written of an embedding model, and whether it gives
the model's own vectors. The work runs as `python -m kbproc.models.export` in a process of its own.
Refuses to know: where a model's weights are, how that process is run, and how an exported model is
served.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from kbproc.base.errors import KbprocError
from kbproc.models import exporting
from kbproc.models.calibration import UNRELATED, Prompts, knows_scripts, scale_of
from kbproc.models.exporting import Job
from kbproc.models.onnx import META, MODEL, OUTPUT, Meta, OnnxEmbedder, read_meta
from kbproc.models.weights import LocalModel, file_stem, require_folder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Least cosine with sentence-transformers. The default model's int8 texts lie
# between .984 and .998; fp32 differs in the seventh place.
_LEAST_COSINE = {"int8": 0.97, "fp32": 0.9999}
PARITY_TEXTS = (
    "x",
    "How do I install git?",
    "  Leading and trailing space.\n",
    "Wie installiere ich Git auf einem älteren Rechner?",
    "东京是日本的首都。",
    "def add(a: int, b: int) -> int:\n    return a + b\n",
    "The log is the truth; views are disposable, and each stores the position applied. " * 6,
    "A text that is longer than any model here can read ends where the model's sight ends. " * 60,
)


def exported_folder(cache: Path, source: LocalModel) -> Path:
    return cache / f"{file_stem(source.name)}-{source.id}"


def export(
    source: LocalModel, cache: Path, *, cancelled: Callable[[], bool] = lambda: False
) -> Path:
    """The folder of the exported model, made where it is missing (some 15 s).

    Raises model.unavailable, operation.cancelled.
    """
    target = exported_folder(cache, source)
    if read_meta(target):
        return target
    place = str(source.packed or require_folder(source))
    job = Job(name=source.name, source=place, target=str(target), sha256=source.sha256)
    exporting.make(job, "kbproc.models.export", is_whole=read_meta, cancelled=cancelled)
    return target


# --- the rest runs in the child ---


def _export(job: Job, folder: Path) -> None:
    """Writes model.onnx, tokenizer.json and meta.json; raises model.unavailable."""
    weights = exporting.weights_of(job)
    model = _load_any(Path(job.source), folder)
    exporting.save_tokenizer(model.tokenizer, folder)
    features = model[0].preprocess([exporting.SAMPLE])
    full = folder / exporting.FULL
    exporter = exporting.save_graph(partial(_chain, model), features, OUTPUT, full)
    prompts = Prompts.of(model)
    meta = Meta(
        name=job.name,
        dim=int(model.encode("x").shape[0]),
        max_tokens=int(model.max_seq_length or 512) - _longest(model, prompts),
        prompts=prompts,
        scale=scale_of(_encoded(model, prompts, UNRELATED)),
        knows_scripts=knows_scripts(lambda text: len(model.tokenizer.tokenize(text))),
        modules=[repr(module) for module in list(model)[1:]],
        lowercase=bool(getattr(model[0], "do_lower_case", False)),
        weights_sha256=weights,
        precision=f"int8-{exporter}",
    )
    reference = _encoded(model, prompts, PARITY_TEXTS)
    exporting.quantize(full, folder / MODEL)
    if not _agrees(meta, folder, reference):
        exporting.give_up_int8(folder)
        meta = msgspec.structs.replace(meta, precision=f"fp32-{exporter}")
        if not _agrees(meta, folder, reference):
            raise KbprocError(
                "model.unavailable", f"{job.name} exported to ONNX does not give its own vectors."
            )
    full.unlink(missing_ok=True)


def _load_any(source: Path, beside: Path) -> Any:
    if source.is_dir():
        return _load(str(source))
    with tempfile.TemporaryDirectory(dir=beside) as unpacked:
        from kbproc.models.packed import unpack

        unpack(source, Path(unpacked))
        return _load(unpacked)


def _encoded(model: Any, prompts: Prompts, texts: Iterable[str]) -> list[NDArray[np.float32]]:
    said = (prompts.document + text for text in texts)
    return [model.encode(text, normalize_embeddings=True, prompt="") for text in said]


def _longest(model: Any, prompts: Prompts) -> int:
    """In tokens."""
    return max(len(model.tokenizer.tokenize(p)) for p in (prompts.query, prompts.document))


def _load(folder: str) -> Any:
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(
        folder,
        device="cpu",
        local_files_only=True,
        trust_remote_code=False,  # none of the code that lies among the model's files is run
        # onnxruntime fuses the plain form of attention, and no other.
        model_kwargs={"attn_implementation": "eager"},
    ).eval()


def _chain(model: Any, names: list[str]) -> Any:
    """The model as a function of tensors in the order of `names`."""
    import torch

    class Chain(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *inputs: Any) -> Any:
            return self.model(dict(zip(names, inputs, strict=True)))["sentence_embedding"]

    return Chain().eval()


def _agrees(meta: Meta, folder: Path, reference: list[NDArray[np.float32]]) -> bool:
    """Whether the exported model gives the reference's vectors; its meta says how nearly."""
    (folder / META).write_bytes(msgspec.json.encode(meta))
    embedder = OnnxEmbedder(folder)
    found = embedder.embed_many(list(PARITY_TEXTS))
    cosines = [float(a @ b) for a, b in zip(found, reference, strict=True)]
    least, mean = min(cosines), sum(cosines) / len(cosines)
    print(f"{meta.precision}: cosine least {least:.5f}, mean {mean:.5f}", file=sys.stderr)
    meta = msgspec.structs.replace(meta, parity=(round(least, 6), round(mean, 6)))
    (folder / META).write_bytes(msgspec.json.encode(meta))
    return least >= _LEAST_COSINE[meta.precision.partition("-")[0]]


if __name__ == "__main__":
    exporting.work(_export)
