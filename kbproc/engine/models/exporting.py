"""Runs an export in a process of its own and writes what every kind of model needs.

Owns: the process, so that torch never enters the one that serves; that a folder is whole or absent;
how a graph, its int8 weights and a tokenizer are written.
Refuses to know: what kind of model it is, and whether what was written gives the model's numbers.
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
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import msgspec

from kbproc.base.durable import write_all
from kbproc.base.errors import KbprocError
from kbproc.base.pipes import claim
from kbproc.base.sandbox import Child
from kbproc.base.values import decoder
from kbproc.models.onnx import MODEL, TOKENIZER
from kbproc.models.weights import weights_sha256

FULL = "fp32.onnx"  # the graph before its weights are rounded
# Two texts, so that no axis of the graph's example is 1.
SAMPLE = ["two texts, so that", "neither axis is 1"]
_EXPORT_SECONDS = 1800
_INPUTS = ("input_ids", "attention_mask", "token_type_ids")


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """`source`: a folder, or a file of packed weights. `target`: the exported model's folder."""

    name: str
    source: str
    target: str
    sha256: str | None


_decode_job = decoder(Job).decode


def make(
    job: Job, module: str, *, is_whole: Callable[[Path], object], cancelled: Callable[[], bool]
) -> None:
    """Lets `module` do the job in a process of its own, and publishes what it has made.

    Raises model.unavailable, operation.cancelled. Processes may race: the first to finish
    wins, and a process that is killed leaves nothing that counts as a model.
    """
    target = Path(job.target)
    cache = target.parent
    try:
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        sweep(target)
        with tempfile.TemporaryDirectory(
            prefix=f".{target.name}.", dir=cache, ignore_cleanup_errors=True
        ) as beside:
            _run(msgspec.structs.replace(job, target=beside), module, cancelled)
            publish(Path(beside), target, is_whole)
    except OSError as error:
        raise KbprocError(
            "model.unavailable",
            f"{job.name} can't be exported into {cache}: {error.strerror}.",
            hint="Make that folder writable, and see that the disk is not full.",
        ) from error


def publish(beside: Path, target: Path, is_whole: Callable[[Path], object]) -> None:
    """Moves what was made to where it belongs, unless another process was first."""
    for path in beside.iterdir():
        path.chmod(0o600)
        with path.open("rb") as file:
            os.fsync(file.fileno())
    if target.exists() and not is_whole(target):
        shutil.rmtree(target)
    try:
        beside.rename(target)
    except OSError:
        # Another process was first; its model serves as well.
        if not is_whole(target):
            raise


def sweep(target: Path) -> None:
    """Removes what killed processes left; a day is longer than any export."""
    for stale in target.parent.glob(f".{target.name}.*"):
        with contextlib.suppress(OSError):
            if time.time() - stale.stat().st_mtime > 86_400:
                shutil.rmtree(stale)


def _run(job: Job, module: str, cancelled: Callable[[], bool]) -> None:
    """Runs the export in its own process; raises model.unavailable, operation.cancelled."""
    deadline = time.monotonic() + _EXPORT_SECONDS
    with tempfile.TemporaryFile() as log, spawn(job, module, log) as child:
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


def spawn(job: Job, module: str, log: IO[bytes]) -> Child:
    """Its stdin stays open for as long as this process lives: the child ends with it."""
    return Child(
        module,
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


def work(export: Callable[[Job, Path], None]) -> None:
    """Does argv[1], a job in JSON. Exit 0, or the reason on stdout and exit 1."""
    job = _decode_job(sys.argv[1])
    reader, writer = claim()
    threading.Thread(target=_end_with_parent, args=(reader,), daemon=True).start()
    warnings.simplefilter("ignore")
    try:
        export(job, Path(job.target))
    except KbprocError as error:
        write_all(writer, error.message.encode())
        sys.exit(1)


def _end_with_parent(reader: int) -> None:
    os.read(reader, 1)
    os._exit(1)


def weights_of(job: Job) -> str:
    """The sha256 of the weights. Raises model.unavailable if they are not the expected ones."""
    weights = weights_sha256(Path(job.source))
    if job.sha256 and weights != job.sha256:
        raise KbprocError("model.unavailable", f"The weights in {job.source} are not {job.name}'s.")
    return weights


def save_tokenizer(tokenizer: Any, folder: Path) -> None:
    """`tokenizer`: of the library transformers."""
    fast = getattr(tokenizer, "backend_tokenizer", None)
    if fast is None:
        raise KbprocError("model.unavailable", "The model has no tokenizer.json.")
    fast.no_truncation()
    fast.no_padding()
    fast.save(str(folder / TOKENIZER))


def save_graph(
    chain_of: Callable[[Sequence[str]], Any], features: Mapping[str, Any], output: str, path: Path
) -> str:
    """Writes a model as one graph and returns the name of the exporter that could.

    `chain_of`: the names of the inputs → the model as a module of torch that takes them in this
    order. `features`: what the tokenizer makes of two texts.

    The older exporter's graph runs a quarter faster under onnxruntime, which
    knows its patterns; the newer one serves where the older fails.
    """
    import torch

    names = [name for name in _INPUTS if name in features]
    inputs = tuple(features[name] for name in names)
    chain = chain_of(names)
    both: dict[str, Any] = {"f": str(path), "input_names": names, "output_names": [output]}
    axes: dict[str, Any] = {name: {0: "batch", 1: "tokens"} for name in names}
    axes[output] = {0: "batch"}
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


def quantize(source: Path, target: Path) -> None:
    """onnx names a file by uuid1, for which a socket is opened to read this machine's address."""
    import uuid

    from onnxruntime.quantization import QuantType, quantize_dynamic

    uuid.uuid1 = uuid.uuid4  # type: ignore[assignment]
    quantize_dynamic(source, target, per_channel=True, weight_type=QuantType.QInt8)


def give_up_int8(folder: Path) -> None:
    """Puts the graph as it was before its weights were rounded in the place of the model."""
    for path in folder.glob("*.ort"):  # onnxruntime made them from the int8 weights
        path.unlink()
    (folder / FULL).replace(folder / MODEL)
