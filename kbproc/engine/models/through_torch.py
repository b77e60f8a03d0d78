"""Traces the ONNX graph of any sentence-transformers model or cross-encoder by torch.

Every use of torch, transformers and sentence-transformers in an export is here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbproc.base.errors import KbprocError
from kbproc.engine.models.onnx import TOKENIZER

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
# Two texts, so that no axis of the graph's example is 1.
_SAMPLE = ("two texts, so that", "neither axis is 1")


def load_sentence(folder: Path) -> Any:
    """Returns the model of the library sentence-transformers; runs none of the folder's code."""
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(
        str(folder),
        device="cpu",
        local_files_only=True,
        trust_remote_code=False,
        # Because onnxruntime fuses the plain form of attention only.
        model_kwargs={"attn_implementation": "eager"},
    ).eval()


def embedded(model: Any, texts: Sequence[str]) -> list[NDArray[np.float32]]:
    """Returns the unit vectors, shape (dim,), that sentence-transformers computes."""
    return [model.encode(text, normalize_embeddings=True, prompt="") for text in texts]


def trace_sentence(model: Any, output: str, path: Path) -> str:
    """Writes the graph and returns the exporter's name."""
    features = model[0].preprocess(list(_SAMPLE))
    return _trace(model, lambda batch: model(batch)["sentence_embedding"], features, output, path)


def load_classifier(folder: Path) -> tuple[Any, Any]:
    """Returns tokenizer and model of the library transformers; runs none of the folder's code."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    model = AutoModelForSequenceClassification.from_pretrained(
        str(folder), attn_implementation="eager", **options
    )
    return AutoTokenizer.from_pretrained(str(folder), **options), model.eval()


def logits(
    tokenizer: Any, model: Any, query: str, texts: Sequence[str], max_tokens: int
) -> list[float]:
    """Returns the model's own logit for each text with the query, computed one pair at a time."""
    import torch

    logits = []
    with torch.no_grad():
        for text in texts:
            features = tokenizer(
                [query],
                [text],
                truncation="only_second",
                max_length=max_tokens,
                return_tensors="pt",
            )
            logits.append(float(model(**features).logits[0, 0]))
    return logits


def trace_classifier(tokenizer: Any, model: Any, output: str, path: Path) -> str:
    """Writes the graph and returns the exporter's name."""
    features = tokenizer(*([text, text] for text in _SAMPLE), return_tensors="pt")
    return _trace(model, lambda batch: model(**batch).logits[:, 0], features, output, path)


def save_tokenizer(tokenizer: Any, folder: Path) -> None:
    """Writes a tokenizer of the library transformers; raises model.unavailable for a slow one."""
    fast = getattr(tokenizer, "backend_tokenizer", None)
    if fast is None:
        raise KbprocError("model.unavailable", "The model has no tokenizer.json.")
    fast.no_truncation()
    fast.no_padding()
    fast.save(str(folder / TOKENIZER))


def _trace(
    model: Any,
    run: Callable[[dict[str, Any]], Any],
    features: Mapping[str, Any],
    output: str,
    path: Path,
) -> str:
    """Writes the graph of what `run` computes from named features; returns the exporter's name.

    The older exporter's graph runs a quarter faster under onnxruntime, which knows its patterns.
    The newer exporter serves where the older fails.
    """
    import torch

    names = [name for name in _INPUTS if name in features]
    inputs = tuple(features[name] for name in names)

    class Chain(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.inner = model  # a member, so that its weights become part of the graph

        def forward(self, *inputs: Any) -> Any:
            return run(dict(zip(names, inputs, strict=True)))

    chain = Chain().eval()
    options: dict[str, Any] = {"f": str(path), "input_names": names, "output_names": [output]}
    axes: dict[str, Any] = {name: {0: "batch", 1: "tokens"} for name in names}
    axes[output] = {0: "batch"}
    try:
        torch.onnx.export(
            chain, inputs, **options, dynamo=False, opset_version=17, dynamic_axes=axes
        )
    except (RuntimeError, TypeError, ValueError, torch.onnx.errors.OnnxExporterError):
        free = dict.fromkeys((0, 1), torch.export.Dim.AUTO)
        shapes = (tuple(free for _ in names),)
        torch.onnx.export(
            chain, inputs, **options, dynamo=True, external_data=False, dynamic_shapes=shapes
        )
        return "dynamo"
    return "torchscript"
