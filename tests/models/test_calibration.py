"""A model's prompts, the meaning of its cosines, and weights packed in one file."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import msgspec
import numpy as np
import pytest

from kbproc.base.errors import KbprocError
from kbproc.engine.models import weights
from kbproc.engine.models.calibration import (
    UNRELATED,
    UNSCALED,
    Prompts,
    Scale,
    knows_scripts,
    scale_of,
)
from kbproc.engine.models.exact import cosines
from kbproc.engine.models.fluency import FEW_SCRIPTS, MANY_SCRIPTS, fluency
from kbproc.engine.models.onnx import EmbedderMeta
from kbproc.engine.models.pack import VectorPack
from kbproc.engine.models.packed import unpack
from tests.kit.fixed import NOT_HERE

DIM = 8
PIECES = ["<s>", "<pad>", "</s>", "<unk>", "▁", "▁the", "▁log", "s", "l", "o", "g"]
META = EmbedderMeta(
    name="m", dim=2, max_tokens=9, modules=["mean"], weights_sha256="0", precision="fp32"
)


def test_cosines_are_put_on_the_models_scale(tmp_path: Path) -> None:
    pack = VectorPack.open(tmp_path / "m.pack", dim=DIM, fingerprint=bytes(32))
    query = np.eye(DIM, dtype=np.float32)[0]
    other = np.array([0.85, *([np.sqrt((1 - 0.85**2) / 7)] * 7)], np.float32)
    pack.append([pack.key("same"), pack.key("near")], np.stack([query, other]))
    rows = np.arange(2)
    assert cosines(query, pack.vectors(rows), pack.scale) == pytest.approx([1, 0.85], abs=1e-3)
    pack.scale = Scale(low=0.7, span=0.3)
    assert cosines(query, pack.vectors(rows), pack.scale) == pytest.approx([1, 0.5], abs=5e-3)
    assert cosines(-query, pack.vectors(rows), pack.scale)[0] == -1


def test_a_scale_is_told_by_texts_that_have_nothing_in_common() -> None:
    apart = [np.eye(16, dtype=np.float32)[n] for n in range(10)]
    assert scale_of(apart) == UNSCALED
    shared = np.sqrt(0.75) * np.eye(16, dtype=np.float32)[15]
    near = [shared + 0.5 * vector for vector in apart]
    assert scale_of(near) == Scale(low=0.75, span=0.25)
    assert len(set(UNRELATED)) == len(UNRELATED) == 10


def test_a_prompt_makes_other_vectors_of_texts_and_so_another_fingerprint() -> None:
    prompted = msgspec.structs.replace(META, prompts=Prompts(query="q: ", document="d: "))
    only_asked = msgspec.structs.replace(META, prompts=Prompts(query="q: "))
    scaled = msgspec.structs.replace(META, scale=Scale(low=0.7, span=0.3))
    assert prompted.fingerprint != META.fingerprint
    assert only_asked.fingerprint == scaled.fingerprint == META.fingerprint


def test_prompts_go_by_either_name() -> None:
    named = {"query": "query: ", "passage": "passage: "}
    assert Prompts.of(named) == Prompts(query="query: ", document="passage: ")
    assert Prompts.of(None) == Prompts.of({"query": None}) == Prompts()


def test_a_tokenizer_of_many_scripts_knows_chinese() -> None:
    assert knows_scripts(lambda text: len(text) // 2)
    assert not knows_scripts(len)
    spans = [(0, 2), (2, 3), (3, 5)]  # three words for five letters
    assert fluency("东京是日本", spans, [False] * 3, MANY_SCRIPTS).factor == 1
    assert fluency("东京是日本", spans, [False] * 3, FEW_SCRIPTS).factor < 0.2


# ------------------------------------------------------------------------ packed weights


def packed(path: Path, width: int = 32, inner: int = 64) -> dict[str, np.ndarray]:
    """Writes a packed file of one layer; returns its values by their names in the file."""
    random = np.random.default_rng(0)
    words = len(PIECES)
    shapes: dict[str, tuple[int, ...]] = {"emb.word": (words, width)}
    shapes |= {f"l0.{n}.w": (width, width) for n in ("q", "k", "v", "ao")}
    shapes |= {"l0.fi.w": (inner, width), "l0.fo.w": (width, inner)}
    plain: dict[str, tuple[int, ...]] = {"emb.pos": (16, width), "emb.type": (2, width)}
    plain |= dict.fromkeys(("emb.ln.w", "emb.ln.b"), (width,))
    plain |= {f"l0.{n}.b": (width,) for n in ("q", "k", "v", "ao", "fo", "aln", "oln")}
    plain |= {"l0.fi.b": (inner,), "l0.aln.w": (width,), "l0.oln.w": (width,)}
    values, parts = {}, []
    for name, shape in shapes.items():
        nibbles = random.integers(0, 16, (int(np.prod(shape)) // 32, 32)).astype(np.uint8)
        scales = random.uniform(0.01, 0.1, len(nibbles)).astype("<f2")
        values[name] = ((nibbles.astype(np.float32) - 8) * scales[:, None]).reshape(shape)
        halves = nibbles[:, :16] | (nibbles[:, 16:] << 4)
        blocks = (s.tobytes() + h.tobytes() for s, h in zip(scales, halves, strict=True))
        parts.append((name, 1, b"".join(blocks)))
    for name, shape in plain.items():
        values[name] = random.standard_normal(shape).astype("<f4")
        parts.append((name, 0, values[name].tobytes()))
    pieces = [piece.encode() for piece in PIECES]
    head = b"E5S1" + struct.pack("<I7ifi", 1, width, 1, 2, inner, words, 16, 2, 1e-12, 32)
    head += struct.pack("<5iQ", words, 0, 2, 1, 3, sum(map(len, pieces)))
    head += np.cumsum([0, *map(len, pieces)]).astype("<u4").tobytes()
    head += np.array([0, 0, 0, 0, *range(-1, -8, -1)], "<f4").tobytes() + b"".join(pieces)
    head += struct.pack("<iI", 0, 0) + struct.pack("<i", len(parts))
    at = len(head) + sum(2 + len(name) + 21 for name, *_ in parts)
    for name, kind, data in parts:
        head += struct.pack("<H", len(name)) + name.encode()
        head += struct.pack("<BIQQ", kind, 0, at, len(data))
        at += len(data)
    path.write_bytes(head + b"".join(data for *_, data in parts))
    return values


def test_packed_weights_become_a_folder(tmp_path: Path) -> None:
    from safetensors.numpy import load_file
    from tokenizers import Tokenizer

    values = packed(tmp_path / "m.bin")
    unpack(tmp_path / "m.bin", tmp_path / "m")
    tensors = load_file(tmp_path / "m" / "model.safetensors")
    np.testing.assert_array_equal(tensors["embeddings.word_embeddings.weight"], values["emb.word"])
    dense = tensors["encoder.layer.0.intermediate.dense.weight"]
    np.testing.assert_array_equal(dense, values["l0.fi.w"])
    norm = tensors["encoder.layer.0.output.LayerNorm.bias"]
    np.testing.assert_array_equal(norm, values["l0.oln.b"])
    assert len(tensors) == 5 + 12 + 4
    tokenizer = Tokenizer.from_file(str(tmp_path / "m" / "tokenizer.json"))
    assert tokenizer.encode("the  logs").tokens == ["<s>", "▁the", "▁log", "s", "</s>"]
    config = json.loads((tmp_path / "m" / "config_sentence_transformers.json").read_text())
    assert config["prompts"] == {"query": "query: ", "document": "passage: "}


@pytest.mark.parametrize("data", [b"", b"E5S1", b"PK\3\4" + bytes(99), b"E5S1" + bytes(200)])
def test_a_file_of_another_kind_is_no_model(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "m.bin").write_bytes(data)
    with pytest.raises(KbprocError, match="no weights") as caught:
        unpack(tmp_path / "m.bin", tmp_path / "m")
    assert caught.value.type == "model.unavailable"


def test_a_named_model_that_is_not_there_says_how_it_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(weights, "CARRIERS", NOT_HERE)
    source = weights.locate("multilingual-e5-small")
    with pytest.raises(KbprocError) as caught:
        weights.require(source, None)
    assert "kbproc model install multilingual-e5-small" in str(caught.value.hint)
