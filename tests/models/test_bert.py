"""A BERT's graph computes the formulas exactly, and what can't become a graph is named."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from kbproc.engine.models.bert import BertConfig, Writer, read_config, save
from kbproc.engine.models.tensors import read_tensors, write_tensors
from tests.kit import models

IDS = [2, 40, 41, 7, 3]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with small weights: a processor without VNNI saturates products of large weights."""
    place = tmp_path_factory.mktemp("bert")
    return models.bert(place, layers=1, hidden=8, max_tokens=8, spread=0.05)


def output_of(path: Path, types: list[int] | None = None) -> NDArray[np.float32]:
    import onnxruntime

    session = onnxruntime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])
    inputs = {
        "input_ids": np.array([IDS], np.int64),
        "token_type_ids": np.array([types or [0] * len(IDS)], np.int64),
    }
    output: NDArray[np.float32] = session.run(None, inputs)[0]
    return output


def test_only_a_plain_encoder_becomes_a_graph(subtests: pytest.Subtests) -> None:
    cases: list[tuple[dict[str, Any], str | None]] = [
        ({}, None),
        ({"hidden_act": "gelu_python", "position_embedding_type": None}, None),
        ({"model_type": "roberta"}, "architecture roberta"),
        ({"hidden_act": "relu"}, "activation relu"),
        ({"position_embedding_type": "relative_key"}, "positions of the kind relative_key"),
        ({"is_decoder": True}, "a decoder"),
    ]
    for members, obstacle in cases:
        with subtests.test(obstacle=obstacle):
            assert BertConfig(**{"model_type": "bert", **members}).obstacle == obstacle


def test_a_config_has_the_defaults_of_bert_base() -> None:
    config = read_config(b'{"model_type":"bert","unknown":1}')
    assert (config.hidden_size, config.num_hidden_layers, config.layer_norm_eps) == (768, 12, 1e-12)
    with pytest.raises(msgspec.ValidationError):
        read_config(b"{}")


def test_the_files_are_those_of_the_library_onnx(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    """The library writes the same bytes from what it reads; nothing here needs it to write."""
    onnx = pytest.importorskip("onnx")
    paths = (tmp_path / "exact.onnx", tmp_path / "int8.onnx")
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "onnx", None)
        save(folder, lambda writer: writer.pooled("max"), "vector", *paths)
    for path in paths:
        with subtests.test(path=path.name):
            model = onnx.ModelProto.FromString(path.read_bytes())
            assert model.SerializeToString(deterministic=True) == path.read_bytes()
            values = {tensor.name: tensor for tensor in model.graph.initializer}
            assert onnx.numpy_helper.to_array(values["axes"]).tolist() == [0]
            pooled = next(node for node in model.graph.node if node.name == "pooled")
            assert [onnx.helper.get_attribute_value(a) for a in pooled.attribute] == [[1], 0]
            assert all(not part.HasField("doc_string") for part in (model, model.graph, pooled))
            assert not onnx_unknown(model)


def onnx_unknown(model: Any) -> int:
    """Returns how many fields in the model and its graph the library does not know."""
    from google.protobuf.unknown_fields import UnknownFieldSet

    parts = [model, model.graph, *model.graph.node, *model.graph.initializer, *model.graph.input]
    return sum(len(UnknownFieldSet(part)) for part in parts)


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
def test_both_graphs_pool_the_states_of_the_formulas(
    folder: Path, tmp_path: Path, pooling: str
) -> None:
    exact, int8 = tmp_path / "exact.onnx", tmp_path / "int8.onnx"
    save(folder, lambda writer: writer.pooled(pooling), "vector", exact, int8)
    types = [0, 0, 0, 1, 1]
    states = models.states(folder, IDS, types)
    pooled = {"mean": states.mean(0), "cls": states[0], "max": states.max(0)}[pooling]
    assert output_of(exact, types) == pytest.approx(pooled[None], abs=1e-5)
    assert output_of(int8, types) == pytest.approx(pooled[None], abs=0.1)
    is_rounded = [b"MatMulInteger" in path.read_bytes() for path in (exact, int8)]
    assert is_rounded == [False, True]


def test_a_score_needs_exactly_one_label(tmp_path: Path) -> None:
    for labels in (2, 1):
        source = models.bert(tmp_path / f"m{labels}", layers=1, hidden=8, labels=labels)
        graphs = (tmp_path / "exact.onnx", tmp_path / "int8.onnx")
        if labels == 2:
            with pytest.raises(ValueError, match="it has 2 labels instead of one"):
                save(source, Writer.score, "logit", *graphs)
        else:
            save(source, Writer.score, "logit", *graphs)
            assert output_of(graphs[0]).shape == (1,)


def test_a_missing_tensor_and_a_damaged_file_are_errors(folder: Path, tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    graphs = (tmp_path / "exact.onnx", tmp_path / "int8.onnx")
    tensors = load_file(folder / "model.safetensors")
    del tensors["encoder.layer.0.output.dense.bias"]
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(KeyError, match=r"encoder\.layer\.0\.output\.dense\.bias"):
        save(tmp_path, lambda writer: writer.pooled("cls"), "vector", *graphs)
    file = tmp_path / "model.safetensors"
    whole = file.read_bytes()
    for damaged in (b"nonsense", b"", whole[:-1], whole.replace(b'"shape":[8]', b'"shape":[9]')):
        file.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"model\.safetensors"):
            save(tmp_path, lambda writer: writer.pooled("cls"), "vector", *graphs)
    file.write_bytes(whole.replace(b'"F32"', b'"F8_"'))
    with pytest.raises(TypeError, match="numbers of the kind F8_"):
        save(tmp_path, lambda writer: writer.pooled("cls"), "vector", *graphs)


def test_tensors_are_those_of_the_library_safetensors(tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    tensors = {
        "odd": np.arange(6, dtype=np.int8).reshape(1, 2, 3),
        "half": np.array([[0.5], [-2]], np.float16),
        "single": np.array(7, np.float32),
        "none": np.zeros((0, 4), np.float64),
    }
    save_file(tensors, tmp_path / "a.safetensors", metadata={"format": "pt"})
    read = read_tensors(tmp_path)
    assert {name: value.tolist() for name, value in read.items()} == {
        name: value.tolist() for name, value in tensors.items()
    }
    assert all(read[name].dtype == value.dtype for name, value in tensors.items())
    write_tensors(tmp_path / "b.safetensors", {"x": np.eye(3, dtype=np.float32)})
    assert load_file(tmp_path / "b.safetensors")["x"].tolist() == np.eye(3).tolist()
