"""Exports a cross-encoder to ONNX with int8 weights, once.

Owns: which folders hold a cross-encoder, where exported ones are cached, what is written of one,
and whether it gives the model's own scores. The work runs as
`python -m kbproc.models.reranking.export` in a process of its own.
Refuses to know: how that process is run, and how an exported model is served.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from kbproc.base.errors import KbprocError
from kbproc.models import exporting
from kbproc.models.exporting import Job
from kbproc.models.onnx import MODEL
from kbproc.models.reranking.exported import META, OUTPUT, Exported, Meta, logistic, read_meta
from kbproc.models.weights import LocalModel, file_stem, locate, require_folder

# The greatest differences from the model's own scores and logits. Scores alone would not do: a
# model that is sure of all these pairs has scores next to 0 and 1, whatever its logits.
_MOST = {"int8": (0.02, 0.25), "fp32": (0.0005, 0.005)}
_MOST_TOKENS = 8192
PARITY_QUERY = "How do I install git?"
PARITY_TEXTS = (
    "x",
    "To install git, fetch the archive and run make; on an older machine, build zlib first.",
    "Wie installiere ich Git auf einem älteren Rechner?",
    "东京是日本的首都。",
    "def add(a: int, b: int) -> int:\n    return a + b\n",
    "Fold the egg whites gently and bake the soufflé at once. " * 6,
    "A text that is longer than any model here can read ends where the model's sight ends. " * 60,
)


def located(folder: Path) -> LocalModel:
    """Raises model.unavailable if there is no cross-encoder in the folder."""
    if not folder.is_absolute():
        raise _wrong(f"{folder} is no absolute path.")
    try:
        config = msgspec.json.decode((folder / "config.json").read_bytes())
    except (OSError, ValueError):
        raise _wrong(f"{folder} holds no model: its config.json can't be read.") from None
    labels = config.get("id2label", {}) if isinstance(config, dict) else {}
    if len(labels) > 1:
        raise _wrong(f"The model in {folder} has {len(labels)} labels; a cross-encoder has one.")
    return locate(str(folder))


def exported_folder(cache: Path, source: LocalModel) -> Path:
    """Beside the embedding models: the same folder may hold either."""
    return cache / f"{file_stem(source.name)}-{source.id}-reranker"


def export(source: LocalModel, target: Path, *, cancelled: Callable[[], bool]) -> None:
    """Makes the exported model where it is missing.

    Raises model.unavailable, operation.cancelled.
    """
    if read_meta(target):
        return
    place = str(require_folder(source))
    job = Job(name=source.name, source=place, target=str(target), sha256=source.sha256)
    module = "kbproc.models.reranking.export"
    exporting.make(job, module, is_whole=read_meta, cancelled=cancelled)


def _wrong(message: str) -> KbprocError:
    hint = "rerank.folder names the folder of a sentence-transformers cross-encoder with one label."
    return KbprocError("model.unavailable", message, hint=hint, lasting=True)


# --- the rest runs in the child ---


def _export(job: Job, folder: Path) -> None:
    """Writes model.onnx, tokenizer.json and reranker.json; raises model.unavailable."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    weights = exporting.weights_of(job)
    local = {"local_files_only": True, "trust_remote_code": False}
    tokenizer = AutoTokenizer.from_pretrained(job.source, **local)
    model = AutoModelForSequenceClassification.from_pretrained(
        job.source,
        attn_implementation="eager",  # onnxruntime fuses this form of attention, and no other
        **local,
    ).eval()
    if model.config.num_labels != 1:
        labels = model.config.num_labels
        raise KbprocError("model.unavailable", f"{job.name} has {labels} labels instead of one.")
    meta = Meta(
        name=job.name,
        max_tokens=_max_tokens(tokenizer, model),
        weights_sha256=weights,
        precision="",
    )
    reference = _logits(tokenizer, model, meta.max_tokens)
    features = tokenizer(*([text, text] for text in exporting.SAMPLE), return_tensors="pt")
    exporting.save_tokenizer(tokenizer, folder)
    full = folder / exporting.FULL
    exporter = exporting.save_graph(partial(_chain, model), features, OUTPUT, full)
    exporting.quantize(full, folder / MODEL)
    if not _agrees(meta, f"int8-{exporter}", folder, reference):
        exporting.give_up_int8(folder)
        if not _agrees(meta, f"fp32-{exporter}", folder, reference):
            raise KbprocError(
                "model.unavailable", f"{job.name} exported to ONNX does not give its own scores."
            )
    full.unlink(missing_ok=True)


def _max_tokens(tokenizer: Any, model: Any) -> int:
    """Returns how many tokens the model reads; some models use no position below the padding's."""
    positions = getattr(model.config, "max_position_embeddings", None) or 512
    if model.config.model_type in {"roberta", "xlm-roberta", "camembert"}:
        positions -= model.config.pad_token_id + 1
    return int(min(positions, tokenizer.model_max_length, _MOST_TOKENS))


def _logits(tokenizer: Any, model: Any, max_tokens: int) -> list[float]:
    """The model's own, one pair at a time."""
    import torch

    logits = []
    with torch.no_grad():
        for text in PARITY_TEXTS:
            features = tokenizer(
                PARITY_QUERY,
                text,
                truncation="only_second",
                max_length=max_tokens,
                return_tensors="pt",
            )
            logits.append(float(model(**features).logits[0, 0]))
    return logits


def _chain(model: Any, names: Sequence[str]) -> Any:
    """The model as a function of tensors in the order of `names`."""
    import torch

    class Chain(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *inputs: Any) -> Any:
            return self.model(**dict(zip(names, inputs, strict=True))).logits[:, 0]

    return Chain().eval()


def _agrees(meta: Meta, precision: str, folder: Path, reference: list[float]) -> bool:
    """Returns whether the exported model gives the reference's logits and notes how nearly."""
    meta = msgspec.structs.replace(meta, precision=precision)
    (folder / META).write_bytes(msgspec.json.encode(meta))
    exported = Exported(folder)
    query = exported.query(PARITY_QUERY)
    logits = [exported.logit(query, text) for text in PARITY_TEXTS]
    pairs = list(zip(logits, reference, strict=True))
    score = max(abs(logistic(a) - logistic(b)) for a, b in pairs)
    logit = max(abs(a - b) for a, b in pairs)
    print(f"{precision}: scores differ by {score:.5f}, logits by {logit:.5f}", file=sys.stderr)
    meta = msgspec.structs.replace(meta, parity=(round(score, 6), round(logit, 6)))
    (folder / META).write_bytes(msgspec.json.encode(meta))
    most_score, most_logit = _MOST[precision.partition("-")[0]]
    return score <= most_score and logit <= most_logit


if __name__ == "__main__":
    exporting.work(_export)
