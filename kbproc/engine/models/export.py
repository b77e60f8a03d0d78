"""Exports an embedding model to ONNX with int8 weights, once.

The work runs in a process of its own: `python -m kbproc.engine.models.export`. An exported model
counts only if it gives the model's own vectors.

There are three ways to a graph, and the first possible one is taken: a graph of BERT that is
written from the model's tensors, a graph that the folder ships, and one that torch traces, for all
other models of sentence-transformers. A shipped graph comes second, so that the same weights give
the same vectors wherever they lie.
"""

from __future__ import annotations

import base64
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from kbproc.base.errors import KbprocError
from kbproc.base.host import installs
from kbproc.base.values import decoder
from kbproc.engine.models import bert, exporting
from kbproc.engine.models.calibration import UNRELATED, Prompts, knows_scripts, scale_of
from kbproc.engine.models.exporting import FULL, Job
from kbproc.engine.models.onnx import (
    INPUTS,
    META,
    MODEL,
    OUTPUT,
    TOKENIZER,
    EmbedderMeta,
    OnnxEmbedder,
    read_meta,
    tokenizer,
)
from kbproc.engine.models.sentence import Sentence, need, read_sentence
from kbproc.engine.models.weights import (
    TORCH,
    LocalModel,
    exported_folder,
    lacking,
    require,
    weights_sha256,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vectors = Sequence[NDArray[np.float32]]  # unit vectors, each of shape (dim,)


_SHIPPED = "shipped"
# Least cosine with the model's own vectors. The default model's int8 vectors have between .984 and
# .998; fp32 differs in the seventh place.
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
# Weights' sha256 → sentence-transformers' vectors of the PARITY_TEXTS as they are: 16-bit floats in
# base64. `python -m bench.references` writes the file.
REFERENCES = Path(__file__).with_name("references.json")
decode_references = decoder(dict[str, list[str]]).decode


def export(
    source: LocalModel, exports: Path, *, cancelled: Callable[[], bool] = lambda: False
) -> Path:
    """Returns the folder of the exported model, of all in `exports`.

    It is made if it is missing or damaged (2 s; by torch 12 s and more). Raises model.unavailable,
    operation.cancelled.
    """
    target = exported_folder(exports, source)
    if is_whole(target):
        return target
    place = str(source.packed or require(source, need(source)))
    job = Job(
        name=source.name,
        source=place,
        target=str(target),
        sha256=source.sha256,
        files=source.files,
        prefixes=source.prefixes,
    )
    exporting.make(job, "kbproc.engine.models.export", is_whole=is_whole, cancelled=cancelled)
    return target


def is_whole(folder: Path) -> bool:
    """Returns whether the folder holds an exported model, to the bit as it was exported."""
    meta = read_meta(folder)
    return meta is not None and meta.files == _hashes(folder)


# --- the rest runs in the child ---


class _EmbedderGraphs(msgspec.Struct, frozen=True, kw_only=True):
    """The files that were written: fp32/model.onnx, model.onnx with int8 weights, tokenizer.json.

    `modules`: the modules in the graph, for the fingerprint. `own`: returns the model's own unit
    vectors of texts, the prompt included; None: the fp32 graph computes them.
    """

    exporter: str
    sentence: Sentence
    modules: list[str]
    own: Callable[[Sequence[str]], Vectors] | None = None


def _export(job: Job, folder: Path) -> None:
    """Writes model.onnx, tokenizer.json and meta.json; raises model.unavailable."""
    weights = exporting.weights_of(job)
    full = folder / FULL
    full.mkdir()
    with _unpacked(Path(job.source), folder) as source:
        graphs = _graphs(source, folder)
        if graphs.exporter == _SHIPPED:
            # The graph that was written holds the weights that lay in files beside the shipped one.
            weights = weights_sha256(full / MODEL)
        meta = _meta(job.name, weights, graphs, folder)
        own = graphs.own or _runner(meta, folder, full)
        vectors = own(UNRELATED)
        meta = replace(meta, dim=len(vectors[0]), scale=scale_of(vectors))
        reference = _kept_reference(weights) or own(PARITY_TEXTS)
    if not _agrees(meta, folder, reference):
        exporting.give_up_int8(folder)
        if not _agrees(replace(meta, precision=f"fp32-{graphs.exporter}"), folder, reference):
            raise KbprocError(
                "model.unavailable", f"{job.name} exported to ONNX does not give its own vectors."
            )
    shutil.rmtree(full)


@contextmanager
def _unpacked(source: Path, beside: Path) -> Iterator[Path]:
    """Yields a folder of sentence-transformers; `source` may be a file of packed weights."""
    if source.is_dir():
        yield source
        return
    with tempfile.TemporaryDirectory(dir=beside) as unpacked:
        from kbproc.engine.models.packed import unpack

        unpack(source, Path(unpacked))
        yield Path(unpacked)


def _graphs(source: Path, folder: Path) -> _EmbedderGraphs:
    sentence = read_sentence(source)
    if sentence.obstacle is None:
        try:
            return (_shipped if sentence.graph else _of_bert)(source, folder, sentence)
        except (LookupError, TypeError, ValueError) as error:
            if lacking(TORCH):
                kind = "a graph of sentences" if sentence.graph else "a plain BERT"
                raise KbprocError(
                    "model.unavailable",
                    f"the files are not those of {kind}: {error}.",
                    hint=f"sentence-transformers may read them: {installs('meaning,export')}.",
                ) from error
    return _traced(source, folder)


def _of_bert(source: Path, folder: Path, sentence: Sentence) -> _EmbedderGraphs:
    exporting.copy_tokenizer(source, folder)
    paths = exporting.graph_paths(folder)
    bert.save(source, lambda writer: writer.pooled(sentence.pooling), OUTPUT, *paths)
    return _EmbedderGraphs(exporter="bert", sentence=sentence, modules=[sentence.pooling])


def _shipped(source: Path, folder: Path, sentence: Sentence) -> _EmbedderGraphs:
    """Writes the folder's own graph, with nodes that pool its tokens where it lacks them."""
    exporting.copy_tokenizer(source, folder)
    full = folder / FULL / MODEL
    save_pooled(source / str(sentence.graph), sentence.pooling, OUTPUT, full)
    exporting.quantize(full, folder / MODEL)
    return _EmbedderGraphs(exporter=_SHIPPED, sentence=sentence, modules=[sentence.pooling])


def _traced(source: Path, folder: Path) -> _EmbedderGraphs:
    from kbproc.engine.models import through_torch

    model = through_torch.load_sentence(source)
    through_torch.save_tokenizer(model.tokenizer, folder)
    full = folder / FULL / MODEL
    exporter = through_torch.trace_sentence(model, OUTPUT, full)
    exporting.quantize(full, folder / MODEL)
    prompts = Prompts.of(getattr(model, "prompts", None))
    sentence = Sentence(
        max_tokens=int(model.max_seq_length or 512),
        prompts=prompts,
        lowercase=bool(getattr(model[0], "do_lower_case", False)),
    )

    def own(texts: Sequence[str]) -> Vectors:
        return through_torch.embedded(model, [prompts.document + text for text in texts])

    modules = [repr(module) for module in list(model)[1:]]
    return _EmbedderGraphs(exporter=exporter, sentence=sentence, modules=modules, own=own)


def _meta(name: str, weights: str, graphs: _EmbedderGraphs, folder: Path) -> EmbedderMeta:
    """Returns the meta of a model without the members that depend on its vectors."""
    words, sentence = tokenizer(folder), graphs.sentence

    def count(text: str) -> int:
        return len(words.encode(text, add_special_tokens=False).ids)

    prompts = sentence.prompts
    return EmbedderMeta(
        name=name,
        dim=0,
        max_tokens=sentence.max_tokens - max(map(count, (prompts.query, prompts.document))),
        prompts=prompts,
        knows_scripts=knows_scripts(count),
        modules=graphs.modules,
        lowercase=sentence.lowercase,
        weights_sha256=weights,
        precision=f"int8-{graphs.exporter}",
    )


def _runner(meta: EmbedderMeta, folder: Path, full: Path) -> Callable[[Sequence[str]], Vectors]:
    """Returns a function that embeds texts with the fp32 graph."""
    shutil.copy(folder / TOKENIZER, full / TOKENIZER)
    (full / META).write_bytes(msgspec.json.encode(meta))
    embedder = OnnxEmbedder(full, is_kept=False)
    return lambda texts: embedder.embed_many(list(texts))


def _kept_reference(weights: str) -> Vectors | None:
    import numpy as np

    encoded = decode_references(REFERENCES.read_bytes()).get(weights)
    if encoded is None:
        return None
    return [np.frombuffer(base64.b64decode(text), "<f2").astype(np.float32) for text in encoded]


def _hashes(folder: Path) -> dict[str, str]:
    return {file: weights_sha256(folder / file) for file in (MODEL, TOKENIZER)}


def _agrees(meta: EmbedderMeta, folder: Path, reference: Vectors) -> bool:
    """Returns whether the exported model gives the reference's vectors.

    Writes the least and the mean cosine, and the files' sha256, into its meta.
    """
    (folder / META).write_bytes(msgspec.json.encode(meta))
    vectors = OnnxEmbedder(folder).embed_many(list(PARITY_TEXTS))
    cosines = [float(a @ b) for a, b in zip(vectors, reference, strict=True)]
    least, mean = min(cosines), sum(cosines) / len(cosines)
    print(f"{meta.precision}: cosine least {least:.5f}, mean {mean:.5f}", file=sys.stderr)
    meta = replace(meta, parity=(round(least, 6), round(mean, 6)), files=_hashes(folder))
    (folder / META).write_bytes(msgspec.json.encode(meta))
    return least >= _LEAST_COSINE[meta.precision.partition("-")[0]]


# ------------------------------------------------------------------ a shipped graph


_AXES = "kbproc.axes"
_AXES_ARE_AN_INPUT = 18  # since this version of ONNX's operators
_OF_TEXT = "sentence_embedding"
_OF_TOKENS = ("last_hidden_state", "token_embeddings")


def save_pooled(source: Path, pooling: str, output: str, target: Path) -> None:
    """Writes the graph with the text's vector as its only output.

    Graphs of the hub give states of tokens (`last_hidden_state`, `token_embeddings`), which are
    pooled here, or the text's vector as well (`sentence_embedding`). No token is padding, because
    kbproc runs one text at a time. Raises ValueError for a damaged graph, and for inputs or
    outputs that kbproc does not know.
    """
    import onnx
    from google.protobuf.message import DecodeError
    from onnx import TensorProto, helper

    try:
        model = onnx.load(str(source))
    except (DecodeError, OSError, onnx.checker.ValidationError) as error:
        raise ValueError(f"the graph that is shipped can't be read: {error}") from error
    graph = model.graph
    if strange := {node.name for node in graph.input} - INPUTS:
        raise ValueError(f"the graph that is shipped asks for {', '.join(sorted(strange))}")
    names = [node.name for node in graph.output]
    if _OF_TEXT in names:
        graph.node.append(helper.make_node("Identity", [_OF_TEXT], [output]))
    elif states := next((name for name in _OF_TOKENS if name in names), None):
        _pool(model, states, pooling, output)
    else:
        raise ValueError(f"the graph that is shipped gives {', '.join(names)}")
    del graph.output[:]
    graph.output.append(helper.make_tensor_value_info(output, TensorProto.FLOAT, None))
    onnx.save(model, str(target))


def _pool(model: Any, states: str, pooling: str, output: str) -> None:
    from onnx import TensorProto, helper

    graph = model.graph
    if pooling == "cls":
        graph.initializer.append(helper.make_tensor(_AXES, TensorProto.INT64, [], [0]))
        graph.node.append(helper.make_node("Gather", [states, _AXES], [output], axis=1))
        return
    kind = "ReduceMax" if pooling == "max" else "ReduceMean"
    opset = max(s.version for s in model.opset_import if s.domain in {"", "ai.onnx"})
    if opset < _AXES_ARE_AN_INPUT:
        graph.node.append(helper.make_node(kind, [states], [output], axes=[1], keepdims=0))
        return
    graph.initializer.append(helper.make_tensor(_AXES, TensorProto.INT64, [1], [1]))
    graph.node.append(helper.make_node(kind, [states, _AXES], [output], keepdims=0))


if __name__ == "__main__":
    exporting.work(_export)
