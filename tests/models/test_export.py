"""A model's graph is written without torch, and computes the values of the model's formulas."""

from __future__ import annotations

import base64
import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kbproc.base.errors import KbprocError
from kbproc.engine.models import export, weights
from kbproc.engine.models.catalogue import load
from kbproc.engine.models.export import PARITY_TEXTS, save_pooled
from kbproc.engine.models.interface import ModelSpec
from kbproc.engine.models.onnx import OnnxEmbedder, read_meta
from kbproc.engine.models.reranking import crossencoder as reranking
from kbproc.engine.models.reranking.crossencoder import OnnxCrossEncoder
from kbproc.engine.models.sentence import GRAPHS, read_sentence
from tests.kit import models
from tests.kit.patience import LONG, all_or

TEXTS = ("how do i install git", "a backup", "fetch the archive on each run night runner", "x")
POOLED = {"mean": lambda x: x.mean(0), "cls": lambda x: x[0], "max": lambda x: x.max(0)}


def unit(vector: NDArray[np.float64]) -> NDArray[np.float64]:
    return vector / np.linalg.norm(vector)


def token_ids(folder: Path, *texts: str) -> Any:
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(folder / "tokenizer.json")).encode(*texts)


@pytest.mark.parametrize(
    ("pooling", "prefix"),
    all_or([("mean", ""), ("cls", "bert."), ("max", "")], product(POOLED, ("", "bert."))),
)
def test_a_bert_gives_the_vectors_of_its_formulas(
    tmp_path: Path, pooling: str, prefix: str
) -> None:
    folder = models.bert(tmp_path / "m", prefix=prefix, hidden=64, layers=3, spread=0.05)
    flags = {
        f"pooling_mode_{name}": name.startswith(pooling)
        for name in ("mean_tokens", "max_tokens", "cls_token")
    }
    models.sentence(folder, ("Pooling", flags), ("Normalize", {}))
    embedder = load(ModelSpec(name=str(folder)), tmp_path / "cache")
    meta = read_meta(next((tmp_path / "cache").iterdir()))
    assert meta is not None
    assert (meta.precision, meta.dim, meta.max_tokens) == ("int8-bert", 64, 64)
    for text in TEXTS:
        own = unit(POOLED[pooling](models.states(folder, token_ids(folder, text).ids)))
        assert embedder.embed(text) @ own > 0.97


def test_exact_weights_give_the_formulas_own_numbers(
    tmp_path: Path,
) -> None:
    """Weights that int8 can't represent are written as fp32."""
    folder = models.bert(tmp_path / "m", spread=2, layers=6)
    models.sentence(folder, ("Pooling", {"pooling_mode": "cls"}))
    embedder = load(ModelSpec(name=str(folder)), tmp_path / "cache")
    meta = read_meta(next((tmp_path / "cache").iterdir()))
    assert meta is not None and meta.precision == "fp32-bert"
    for text in TEXTS:
        own = unit(models.states(folder, token_ids(folder, text).ids)[0])
        np.testing.assert_allclose(embedder.embed(text), own, atol=1e-4)


def test_a_cross_encoder_gives_the_logit_of_its_formulas(tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    folder = models.bert(tmp_path / "m", labels=1, spread=0.05)
    tensors = load_file(folder / "model.safetensors")
    target = tmp_path / "cache" / "m"
    reranking.export(reranking.located(str(folder)), target, cancelled=lambda: False)
    exported = OnnxCrossEncoder(target)
    for text in TEXTS:
        pair = token_ids(folder, TEXTS[0], text)
        first = models.states(folder, pair.ids, pair.type_ids)[0]
        pooled = np.tanh(first @ tensors["bert.pooler.dense.weight"].T)
        own = float((pooled @ tensors["classifier.weight"].T)[0])
        assert exported.logit(exported.query(TEXTS[0]), text) == pytest.approx(own, abs=0.02)


@pytest.mark.parametrize(
    ("config", "modules", "obstacle"),
    [
        ({"model_type": "mpnet"}, [], "architecture mpnet"),
        ({"hidden_act": "relu"}, [], "activation relu"),
        ({"position_embedding_type": "relative_key"}, [], "positions of the kind relative_key"),
        ({"is_decoder": True}, [], "a decoder"),
        ({}, [("Dense", {})], "a module Dense"),
        ({}, [("Pooling", {"pooling_mode": "lasttoken"})], "pooling by lasttoken"),
        (
            {},
            [("Pooling", {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True})],
            "pooling by cls_token and mean_tokens",
        ),
        (
            {},
            [("Pooling", {"pooling_mode": "mean", "include_prompt": False})],
            "pooling without the prompt",
        ),
    ],
)
def test_what_takes_torch_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    config: dict[str, Any],
    modules: list[tuple[str, dict[str, Any]]],
    obstacle: str,
) -> None:
    monkeypatch.setattr(weights, "TORCH", ("no_such_library",))
    folder = models.sentence(models.bert(tmp_path / "m"), *modules)
    original = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**original, **config}))
    with pytest.raises(KbprocError, match=f"has {obstacle}: exporting it needs") as caught:
        load(ModelSpec(name=str(folder)), tmp_path / "cache")
    assert caught.value.type == "model.unavailable"
    assert "[meaning,export]" in caught.value.hint


@pytest.mark.parametrize("file", ["tokenizer.json", "model.safetensors"])
def test_files_that_a_graph_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    monkeypatch.setattr(weights, "TORCH", ("no_such_library",))
    folder = models.bert(tmp_path / "m")
    (folder / file).write_bytes(b"{}")
    with pytest.raises(KbprocError) as caught:
        load(ModelSpec(name=str(folder)), tmp_path / "cache")
    assert caught.value.type == "model.unavailable"
    (folder / file).unlink()
    with pytest.raises(KbprocError, match=r"no tokenizer\.json|no safetensors"):
        load(ModelSpec(name=str(folder)), tmp_path / "cache")


def test_what_a_folder_says_of_its_model(tmp_path: Path) -> None:
    folder = models.sentence(
        models.bert(tmp_path / "m", max_tokens=64),
        ("Pooling", {"pooling_mode": "cls"}),
        prompts={"query": "query: ", "passage": "passage: "},
    )
    (folder / "sentence_bert_config.json").write_text(
        '{"max_seq_length": 32, "do_lower_case": true}'
    )
    description = read_sentence(folder)
    assert (description.pooling, description.max_tokens, description.lowercase) == ("cls", 32, True)
    assert (description.prompts.query, description.prompts.document) == ("query: ", "passage: ")
    assert (description.graph, description.obstacle) == (None, None)
    (folder / "sentence_bert_config.json").write_text("{}")
    assert read_sentence(folder).max_tokens == 64, "more places there are not"


@pytest.mark.parametrize(
    ("pooling", "opset"),
    all_or([("mean", 17), ("cls", 18), ("max", 17)], product(POOLED, (17, 18))),
)
def test_a_graph_that_is_shipped_is_pooled(tmp_path: Path, pooling: str, opset: int) -> None:
    folder = models.shipped(tmp_path / "m", output="last_hidden_state", opset=opset)
    models.sentence(folder, ("Pooling", {"pooling_mode": pooling}))
    embedder = load(ModelSpec(name=str(folder)), tmp_path / "cache")
    table = np.frombuffer((folder / "table.npy").read_bytes(), np.float32).reshape(200, 12)
    for text in TEXTS:
        own = unit(POOLED[pooling](table[token_ids(folder, text).ids]))
        assert embedder.embed(text) @ own > 0.97


def test_a_plain_bert_is_written_even_where_a_graph_is_shipped(tmp_path: Path) -> None:
    """The same weights give the same vectors, with or without a shipped graph."""
    folder = models.bert(tmp_path / "m", spread=0.05)
    (folder / "onnx").mkdir()
    (folder / "onnx" / "model.onnx").write_bytes(b"what nobody reads")
    load(ModelSpec(name=str(folder)), tmp_path / "cache")
    meta = read_meta(next((tmp_path / "cache").iterdir()))
    assert meta is not None and meta.precision == "int8-bert"


def test_a_shipped_graph_takes_what_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = models.shipped(tmp_path / "m", output="sentence_embedding", opset=17)
    monkeypatch.setattr(weights, "GRAPHS", ("no_such_library",))
    with pytest.raises(KbprocError, match=r"has a graph of its own.*no_such_library") as caught:
        load(ModelSpec(name=str(folder)), tmp_path / "cache")
    assert "[meaning,graphs]" in caught.value.hint


def test_shipped_graphs_are_told_apart(tmp_path: Path) -> None:
    """Two shipped graphs have different fingerprints, although their weights are equal."""
    prints = set()
    for opset in (17, 18):
        folder = models.shipped(tmp_path / str(opset), output="last_hidden_state", opset=opset)
        prints.add(load(ModelSpec(name=str(folder)), tmp_path / "cache").fingerprint)
    assert len(prints) == 2


def test_weights_beside_a_shipped_graph_count(tmp_path: Path) -> None:
    prints = set()
    for factor in (1, 2):
        folder = models.shipped(tmp_path / str(factor), output="last_hidden_state", opset=17)
        models.put_beside(folder, factor=factor)
        prints.add(load(ModelSpec(name=str(folder)), tmp_path / "cache").fingerprint)
    assert len(prints) == 2


@pytest.mark.parametrize("damage", ["a pointer", "no weights beside it"])
def test_a_damaged_shipped_graph_is_named(tmp_path: Path, damage: str) -> None:
    folder = models.shipped(tmp_path / "m", output="last_hidden_state", opset=17)
    if damage == "a pointer":
        (folder / GRAPHS[0]).write_text("version https://git-lfs.github.com/spec/v1\n")
    else:
        models.put_beside(folder, factor=1)
        (folder / GRAPHS[0]).with_name("model.onnx_data").unlink()
    with pytest.raises(ValueError, match="the graph that is shipped can't be read"):
        save_pooled(folder / GRAPHS[0], "mean", "vector", tmp_path / "model.onnx")


def test_a_config_that_is_no_utf_8_is_no_model(tmp_path: Path) -> None:
    folder = models.sentence(models.bert(tmp_path / "m"), ("Pooling", {"pooling_mode": "mean"}))
    for name in ("config.json", "modules.json"):
        sound = (folder / name).read_bytes()
        (folder / name).write_bytes(b'{"a": "\xff"}')
        with pytest.raises(KbprocError) as caught:
            load(ModelSpec(name=str(folder)), tmp_path / "cache")
        assert caught.value.type == "model.unavailable"
        (folder / name).write_bytes(sound)


def test_a_graph_that_pools_by_itself(tmp_path: Path) -> None:
    folder = models.shipped(tmp_path / "m", output="sentence_embedding", opset=17)
    embedder = load(ModelSpec(name=str(folder)), tmp_path / "cache")
    table = np.frombuffer((folder / "table.npy").read_bytes(), np.float32).reshape(200, 12)
    own = unit(table[token_ids(folder, TEXTS[0]).ids].sum(0))
    assert embedder.embed(TEXTS[0]) @ own > 0.97


@pytest.mark.parametrize(
    ("output", "extra", "why"),
    [("scores", None, "gives scores"), ("last_hidden_state", "pixels", "asks for pixels")],
)
def test_a_graph_of_another_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str, extra: str | None, why: str
) -> None:
    folder = models.shipped(tmp_path / "m", output=output, opset=17, extra=extra)
    if not weights.lacking(weights.TORCH):
        pytest.skip("where torch is, it is tried next")
    with pytest.raises(KbprocError, match=why) as caught:
        load(ModelSpec(name=str(folder)), tmp_path / "cache")
    assert "[meaning,export]" in caught.value.hint


@pytest.mark.model
def test_the_default_models_vectors_are_those_of_sentence_transformers(tmp_path: Path) -> None:
    """The references for these weights are stored, so that the comparison needs no torch."""
    source = models.default_source()
    if source.folder is None:
        pytest.skip("the default model is not on this machine")
    references = export.decode_references(export.REFERENCES.read_bytes())
    assert source.sha256 in references
    meta = read_meta(export.export(source, tmp_path))
    assert meta is not None
    assert (meta.precision, meta.dim, meta.max_tokens) == ("int8-bert", 384, 256)
    embedder = OnnxEmbedder(next(tmp_path.iterdir()))
    for text, vector in zip(PARITY_TEXTS, references[source.sha256], strict=True):
        own = np.frombuffer(base64.b64decode(vector), "<f2").astype(np.float32)
        assert embedder.embed(text) @ own > 0.98


@pytest.mark.skipif(not LONG, reason="needs torch")
@pytest.mark.parametrize("pooling", POOLED)
def test_a_bert_gives_the_vectors_of_sentence_transformers(tmp_path: Path, pooling: str) -> None:
    pytest.importorskip("sentence_transformers")
    folder = models.bert(tmp_path / "m", hidden=64, layers=3, spread=0.05)
    models.sentence(folder, ("Pooling", {"embedding_dimension": 64, "pooling_mode": pooling}))
    embedder = load(ModelSpec(name=str(folder)), tmp_path / "cache")
    reference = load(ModelSpec(kind="sentence-transformers", name=str(folder)), tmp_path / "cache")
    for text in TEXTS:
        assert embedder.embed(text) @ reference.embed(text) > 0.97
        assert embedder.count_tokens(text) == reference.count_tokens(text)
