"""Exports a sentence-transformers model to ONNX with int8 weights, once.

Owns: the cache of exported models, and the export itself, which runs as
`python -m kbproc.models.export` in a process of its own, so that torch never enters the
process that serves.
Refuses to know: where a model's weights are, and how an exported model is served.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import msgspec

from kbproc.base.durable import write_all
from kbproc.base.errors import KbprocError
from kbproc.base.pipes import claim
from kbproc.base.sandbox import Child
from kbproc.base.values import decoder
from kbproc.models.calibration import UNRELATED, Prompts, knows_scripts, scale_of
from kbproc.models.onnx import META, MODEL, OUTPUT, TOKENIZER, Meta, OnnxEmbedder, read_meta
from kbproc.models.weights import LocalModel, file_stem, require_folder, weights_sha256

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_EXPORT_SECONDS = 1800
_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
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

    Raises model.unavailable, operation.cancelled. Processes may race: the first to finish
    wins, and a process that is killed leaves nothing that counts as a model.
    """
    target = exported_folder(cache, source)
    if read_meta(target):
        return target
    folder = require_folder(source)
    try:
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        sweep(target)
        with tempfile.TemporaryDirectory(
            prefix=f".{target.name}.", dir=cache, ignore_cleanup_errors=True
        ) as beside:
            place = str(source.packed or folder)
            job = Job(name=source.name, source=place, target=beside, sha256=source.sha256)
            _run(job, cancelled)
            publish(Path(beside), target)
    except OSError as error:
        raise KbprocError(
            "model.unavailable",
            f"{source.name} can't be exported into {cache}: {error.strerror}.",
            hint="Make that folder writable, and see that the disk is not full.",
        ) from error
    return target


def publish(beside: Path, target: Path) -> None:
    for path in beside.iterdir():
        path.chmod(0o600)
        with path.open("rb") as file:
            os.fsync(file.fileno())
    if target.exists() and not read_meta(target):
        shutil.rmtree(target)
    try:
        beside.rename(target)
    except OSError:
        # Another process was first; its model serves as well.
        if not read_meta(target):
            raise


def sweep(target: Path) -> None:
    """Removes what killed processes left; a day is longer than any export."""
    for stale in target.parent.glob(f".{target.name}.*"):
        with contextlib.suppress(OSError):
            if time.time() - stale.stat().st_mtime > 86_400:
                shutil.rmtree(stale)


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """`source`: a folder, or a file of packed weights."""

    name: str
    source: str
    target: str
    sha256: str | None


_decode_job = decoder(Job).decode


def _run(job: Job, cancelled: Callable[[], bool]) -> None:
    """Runs the export in its own process; raises model.unavailable, operation.cancelled."""
    deadline = time.monotonic() + _EXPORT_SECONDS
    with tempfile.TemporaryFile() as log, spawn(job, log) as child:
        while True:
            try:
                status = child.process.wait(timeout=0.2)
                break
            except subprocess.TimeoutExpired:
                if cancelled() or time.monotonic() > deadline:
                    child.process.kill()
        if status == 0:
            return
        if cancelled():
            raise KbprocError("operation.cancelled", f"The export of {job.name} was stopped.")
        log.seek(0)
        printed = log.read().decode(errors="replace")[-2000:]
        reason = (child.stdout.read() or b"").decode(errors="replace").strip()
    reason = reason or f"its process ended with {status}"
    raise KbprocError(
        "model.unavailable",
        f"Exporting {job.name} failed: {reason.rstrip('.')}.",
        detail={"log": printed},
    )


def spawn(job: Job, log: IO[bytes]) -> Child:
    """Its stdin stays open for as long as this process lives: the child ends with it."""
    return Child(
        "kbproc.models.export",
        msgspec.json.encode(job).decode(),
        environment={
            # A thread per processor that the machine has would wait for the few that it may use.
            "OMP_NUM_THREADS": "1",
            "TQDM_DISABLE": "1",
            "TOKENIZERS_PARALLELISM": "false",
        },
        stderr=log,
    )


# --- the rest runs in the child ---


def main() -> None:
    """Does argv[1], a job in JSON. Exit 0, or the reason on stdout and exit 1."""
    job = _decode_job(sys.argv[1])
    reader, writer = claim()
    threading.Thread(target=_end_with_parent, args=(reader,), daemon=True).start()
    warnings.simplefilter("ignore")
    try:
        _export(job, Path(job.target))
    except KbprocError as error:
        write_all(writer, error.message.encode())
        sys.exit(1)


def _end_with_parent(reader: int) -> None:
    os.read(reader, 1)
    os._exit(1)


def _export(job: Job, folder: Path) -> None:
    """Writes model.onnx, tokenizer.json and meta.json; raises model.unavailable."""
    weights = weights_sha256(Path(job.source))
    if job.sha256 and weights != job.sha256:
        raise KbprocError("model.unavailable", f"The weights in {job.source} are not {job.name}'s.")
    model = _load_any(Path(job.source), folder)
    _save_tokenizer(model, folder)
    full = folder / "fp32.onnx"
    exporter = _save_graph(model, full)
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
    _quantize(full, folder / MODEL)
    if not _agrees(meta, folder, reference):
        for made in folder.glob("*.ort"):  # of the model that is given up
            made.unlink()
        full.replace(folder / MODEL)
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


def _save_tokenizer(model: Any, folder: Path) -> None:
    fast = getattr(model.tokenizer, "backend_tokenizer", None)
    if fast is None:
        raise KbprocError("model.unavailable", "The model has no tokenizer.json.")
    fast.no_truncation()
    fast.no_padding()
    fast.save(str(folder / TOKENIZER))


def _save_graph(model: Any, path: Path) -> str:
    """Writes the whole chain of modules as one graph; which exporter made it.

    The older exporter's graph runs a quarter faster under onnxruntime, which
    knows its patterns; the newer one serves where the older fails.
    """
    import torch

    features = model[0].preprocess(["two texts, so that", "neither axis is 1"])
    names = [name for name in _INPUTS if name in features]
    inputs = tuple(features[name] for name in names)
    chain = _chain(model, names)
    both: dict[str, Any] = {"f": str(path), "input_names": names, "output_names": [OUTPUT]}
    axes: dict[str, Any] = {name: {0: "batch", 1: "tokens"} for name in names}
    axes[OUTPUT] = {0: "batch"}
    try:
        torch.onnx.export(chain, inputs, **both, dynamo=False, opset_version=17, dynamic_axes=axes)
    except (RuntimeError, TypeError, ValueError, torch.onnx.errors.OnnxExporterError):
        free = dict.fromkeys((0, 1), torch.export.Dim.AUTO)
        shapes = (tuple(free for _ in names),)
        torch.onnx.export(
            chain, inputs, **both, dynamo=True, external_data=False, dynamic_shapes=shapes
        )
        return "dynamo"
    return "torchscript"


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


def _quantize(source: Path, target: Path) -> None:
    """onnx names a file by uuid1, for which a socket is opened to read this machine's address."""
    import uuid

    from onnxruntime.quantization import QuantType, quantize_dynamic

    uuid.uuid1 = uuid.uuid4  # type: ignore[assignment]
    quantize_dynamic(source, target, per_channel=True, weight_type=QuantType.QInt8)


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
    main()
