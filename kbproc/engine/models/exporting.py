"""Runs an export in a process of its own, and writes the files that every kind of model needs.

A process of its own, so that torch never enters the process that serves. The folder of an exported
model is whole or absent.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import msgspec

from kbproc.base.durable import sync_file, write_all
from kbproc.base.errors import KbprocError
from kbproc.base.paths import reason_of
from kbproc.base.pipes import claim_from_parent
from kbproc.base.sandbox import Child
from kbproc.base.values import decoder
from kbproc.engine.models.hub.pins import Prefixes
from kbproc.engine.models.hub.staging import staged
from kbproc.engine.models.onnx import MODEL, TOKENIZER
from kbproc.engine.models.sentence import VOCABULARY
from kbproc.engine.models.weights import weights_sha256

FULL = "fp32"  # the folder of the graph before its weights are rounded
_EXPORT_SECONDS = 1800


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """An export. `source`: a folder, or a file of packed weights. `target`: the model's folder.

    `files`, `prefixes`: see LocalModel.
    """

    name: str
    source: str
    target: str
    sha256: str | None
    files: dict[str, str] = {}
    prefixes: Prefixes | None = None


class ExportFailure(msgspec.Struct, frozen=True):
    """The child's message on stdout if it can't do the job."""

    message: str
    hint: str | None = None


_decode_job = decoder(Job).decode
_decode_failure = decoder(ExportFailure).decode


def make(
    job: Job, module: str, *, is_whole: Callable[[Path], object], cancelled: Callable[[], bool]
) -> None:
    """Runs `module` for the job in a process of its own, and publishes its folder.

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
            f"{job.name} can't be exported into {cache}: {reason_of(error)}.",
            hint="Make that folder writable, and see that it is no link and the disk not full.",
        ) from error


def publish(beside: Path, target: Path, is_whole: Callable[[Path], object]) -> None:
    """Moves a new folder to its target, unless another process was first."""
    for path in filter(Path.is_file, beside.rglob("*")):
        path.chmod(0o600)
        sync_file(path)
    if target.exists() and not is_whole(target):
        shutil.rmtree(target)
    try:
        beside.rename(target)
    except OSError:
        # Another process was first; its model serves as well.
        if not is_whole(target):
            raise


def sweep(target: Path) -> None:
    """Removes folders that killed processes left; a day is longer than any export."""
    for stale in target.parent.glob(f".{target.name}.*"):
        with contextlib.suppress(OSError):
            if time.time() - stale.stat().st_mtime > 86_400:
                shutil.rmtree(stale)


def _run(job: Job, module: str, cancelled: Callable[[], bool]) -> None:
    """Runs the export in its own process; raises model.unavailable, operation.cancelled."""
    deadline = time.monotonic() + _EXPORT_SECONDS
    with tempfile.TemporaryFile() as log, spawn(job, module, log) as child:
        while True:
            if cancelled() or time.monotonic() > deadline:
                child.process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = child.process.wait(timeout=0.2)
                break
        if status == 0:
            return
        if cancelled():
            raise KbprocError("operation.cancelled", f"The export of {job.name} was stopped.")
        if time.monotonic() > deadline:
            minutes = round(_EXPORT_SECONDS / 60)
            raise KbprocError(
                "model.unavailable", f"Exporting {job.name} took longer than {minutes} minutes."
            )
        log.seek(0)
        printed = log.read().decode(errors="replace")[-2000:]
        message = child.stdout.read() or b""
    failure = (
        _decode_failure(message) if message else ExportFailure(f"its process ended with {status}")
    )
    raise KbprocError(
        "model.unavailable",
        f"Exporting {job.name} failed: {failure.message.rstrip('.')}.",
        hint=failure.hint,
        detail={"log": printed},
    )


def spawn(job: Job, module: str, log: IO[bytes]) -> Child:
    """Starts the child. Its stdin closes with this process, and then the child ends."""
    return Child(
        module,
        msgspec.json.encode(job).decode(),
        environment={
            # Because a thread for each of the machine's processors would wait for the few allowed.
            "OMP_NUM_THREADS": "1",
            "TQDM_DISABLE": "1",
            "TOKENIZERS_PARALLELISM": "false",
        },
        stderr=log,
    )


# --- the rest runs in the child ---


def work(export: Callable[[Job, Path], None]) -> None:
    """Does the job in argv[1], as JSON. Exits with 0, or with 1 and an ExportFailure on stdout."""
    job = _decode_job(sys.argv[1])
    writer = claim_from_parent()
    warnings.simplefilter("ignore")
    try:
        with staged(Path(job.source), Path(job.target), job.files, job.prefixes) as source:
            export(msgspec.structs.replace(job, source=str(source)), Path(job.target))
    except KbprocError as error:
        failure = ExportFailure(error.message, error.hint)
    except Exception as error:  # noqa: BLE001  libraries raise anything; its cause must be named
        traceback.print_exc()
        failure = ExportFailure(f"{type(error).__name__}: {error}")
    else:
        return
    write_all(writer, msgspec.json.encode(failure))
    sys.exit(1)


def weights_of(job: Job) -> str:
    """Returns the sha256 of the weights. Raises model.unavailable for unexpected weights."""
    weights = weights_sha256(Path(job.source))
    if job.sha256 and weights != job.sha256:
        raise KbprocError("model.unavailable", f"The weights in {job.source} are not {job.name}'s.")
    return weights


def copy_tokenizer(source: Path, folder: Path) -> None:
    """Writes a tokenizer.json that neither cuts nor pads. Raises ValueError for a damaged one."""
    from tokenizers import Tokenizer

    is_there = (source / TOKENIZER).is_file()
    try:
        words = Tokenizer.from_file(str(source / TOKENIZER)) if is_there else _of_pieces(source)
    except Exception as error:  # tokenizers raises no class of its own
        raise ValueError(f"{TOKENIZER}: {error}") from error
    words.no_truncation()
    words.no_padding()
    words.save(str(folder / TOKENIZER), pretty=False)


def _of_pieces(source: Path) -> Any:
    """Returns the tokenizer of a BERT from its vocabulary, as transformers reads it."""
    from tokenizers import BertWordPieceTokenizer

    try:
        settings = msgspec.json.decode((source / "tokenizer_config.json").read_bytes())
    except OSError:
        settings = {}
    accents = settings.get("strip_accents")
    return BertWordPieceTokenizer(
        str(source / VOCABULARY),
        lowercase=settings.get("do_lower_case") is not False,
        strip_accents=accents if isinstance(accents, bool) else None,
        handle_chinese_chars=settings.get("tokenize_chinese_chars") is not False,
    )


def graph_paths(folder: Path) -> tuple[Path, Path]:
    """Returns the paths of the graphs with exact weights and with int8 weights."""
    return folder / FULL / MODEL, folder / MODEL


def quantize(source: Path, target: Path) -> None:
    """Writes the graph with int8 weights, rounded by onnxruntime."""
    import uuid

    from onnxruntime.quantization import QuantType, quantize_dynamic

    # onnx names a file by uuid1, which opens a socket to read this machine's address.
    uuid.uuid1 = uuid.uuid4  # type: ignore[assignment]
    quantize_dynamic(source, target, per_channel=True, weight_type=QuantType.QInt8)


def give_up_int8(folder: Path) -> None:
    """Replaces the model by its graph with exact weights."""
    for path in folder.glob("*.ort"):  # onnxruntime made them from the int8 weights
        path.unlink()
    (folder / FULL / MODEL).replace(folder / MODEL)
