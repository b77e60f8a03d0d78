"""A model is installed by its name on the hub, pinned, and read as its card and files say."""

from __future__ import annotations

import json
import os
import tomllib
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from kbproc.base import host
from kbproc.base.errors import KbprocError
from kbproc.base.settings.config import Rerank
from kbproc.engine.models import catalogue, install, weights
from kbproc.engine.models.hub import bringing, cache, client, curated, pins
from kbproc.engine.models.hub.names import HubName, hub_name
from kbproc.engine.models.interface import ModelSpec
from kbproc.engine.models.reranking.crossencoder import logistic
from kbproc.engine.store.folder import write_settings
from tests.conftest import OpenSession
from tests.kit import hub as hubs
from tests.kit import models, pages, rerank
from tests.kit.hub import TOKEN, Hub
from tests.kit.talk import REPO, Session

NAME = "someone/tiny-model"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub with a repository; what this process asks, it asks there."""
    import huggingface_hub.constants
    from huggingface_hub import file_download
    from huggingface_hub.utils import _http

    for kind in ("CONFIG", "DATA", "CACHE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / kind.lower()))
    for variable in ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_TOKEN"):
        monkeypatch.delenv(variable, raising=False)
    # A worker of pytest inherits what its parent set for itself.
    monkeypatch.setattr(host, "_BEFORE", {})
    # The process that asks has this setting; this one has imported the library as offline.
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.constants, "HF_TOKEN_PATH", str(tmp_path / "none"))
    waits: list[float] = []
    clock = types.SimpleNamespace(**{**vars(_http.time), "sleep": waits.append})
    monkeypatch.setattr(_http, "time", clock)
    monkeypatch.setattr(file_download, "time", clock)
    with hubs.hub() as server:

        def ask(request: client.Request, tell: Any, cancelled: Any) -> client.HubModel:
            return client.ask(msgspec.structs.replace(request, endpoint=server.url), tell)

        monkeypatch.setattr(bringing, "ask_in_child", ask)
        server.add(NAME, repository(tmp_path / "repository"))
        yield server
    _http.close_session()


def repository(folder: Path, pooling: str = "mean", **prompts: str) -> Path:
    """Writes a repository with the files of a real one; some of them are code."""
    models.sentence(
        models.bert(folder, spread=0.05),
        ("Pooling", {"pooling_mode": pooling}),
        ("Normalize", {}),
        prompts=prompts,
    )
    (folder / "README.md").write_text("---\nlicense: mit\n---\n")
    (folder / "modeling_tiny.py").write_text("raise SystemExit('its code was run')")
    (folder / "pytorch_model.bin").write_bytes(b"a pickle")
    (folder / "tf_model.h5").write_bytes(b"another kind of weights")
    return folder


def brought(name: str = NAME, *, steps: list[Any] | None = None) -> bool:
    return install.install(
        name,
        tell=lambda *far: steps.append(far) if steps is not None else None,
        cancelled=lambda: False,
    )


def refused(name: str = NAME) -> KbprocError:
    with pytest.raises(KbprocError) as caught:
        brought(name)
    assert pins.pin_of(NAME) is None or name != NAME
    return caught.value


def snapshot(name: str = NAME) -> Path:
    folder = weights.locate(name).folder
    assert folder is not None
    return folder


# ---------------------------------------------------------------------- installation


def test_a_model_is_downloaded_once_and_pinned(hub: Hub, tmp_path: Path) -> None:
    steps: list[Any] = []
    assert brought(steps=steps)
    commit = hub.repositories[NAME].main
    pin = pins.pin_of(NAME)
    assert pin is not None
    assert (pin.commit, pin.kind, pin.licence) == (commit, "embedder", "mit")
    expected = {
        file: hubs.sha256(data)
        for file, data in hub.repositories[NAME].commits[commit].items()
        if file not in {"README.md", "modeling_tiny.py", "pytorch_model.bin", "tf_model.h5"}
    }
    assert pin.files == expected
    assert cache.files_in(snapshot()).keys() == expected.keys(), "no code and no pickle came"
    assert snapshot() == tmp_path / "cache/huggingface/hub/models--someone--tiny-model" / (
        f"snapshots/{commit}"
    )
    assert pins.pins_file().stat().st_mode & 0o777 == 0o600
    assert steps[-1] == ("download", steps[-1][2], steps[-1][2], "MB")
    count = len(hub.requests)
    assert not brought(), "it is there"
    assert len(hub.requests) == count, "a model that is there needs no hub"
    embedder = catalogue.load(ModelSpec(name=NAME), tmp_path / "exported")
    assert embedder.dim == 32
    paths = {request.split(" ")[1].split("?")[0] for request in hub.requests}
    assert all("/resolve/" in path or "/cdn/" in path for path in paths - {f"/api/models/{NAME}"})


def test_a_preview_says_all_of_it_and_writes_nothing(hub: Hub, tmp_path: Path) -> None:
    head, *files = install.effects(NAME)
    commit = hub.repositories[NAME].main
    assert head == (f"download {NAME} at revision {commit} from {hub.url}: 0.1 MB, licence mit")
    size = len(hub.repositories[NAME].commits[commit]["model.safetensors"])
    assert f"download model.safetensors ({size:,} bytes)" in files
    assert not any("README" in file or ".py" in file for file in files)
    assert {path.name for path in tmp_path.iterdir()} == {"repository"}
    brought()
    assert install.effects(NAME) == []


def test_the_cache_of_this_machine_is_looked_at_first(hub: Hub, tmp_path: Path) -> None:
    brought()
    pins.pins_file().unlink()  # The files look like a download of another program.
    base = cache.repository_folder(NAME)
    (base / "refs").mkdir(exist_ok=True)
    (base / "refs" / "main").write_text(hub.repositories[NAME].main)
    count = len(hub.requests)
    assert install.effects(NAME)[0].startswith(
        f"use {NAME} at revision {hub.repositories[NAME].main} from the hub's cache"
    )
    assert brought(f"{NAME}@{hub.repositories[NAME].main[:12]}")
    assert brought() is False
    assert len(hub.requests) == count


def test_a_damaged_file_of_the_cache_is_downloaded_again(hub: Hub) -> None:
    brought()
    file = (snapshot() / "model.safetensors").resolve()
    right = file.read_bytes()
    for is_pinned in (True, False):
        if not is_pinned:
            pins.pins_file().unlink()
            refs = cache.repository_folder(NAME) / "refs"
            refs.mkdir(exist_ok=True)
            (refs / "main").write_text(hub.repositories[NAME].main)
        file.write_bytes(right[:-1] + b"x")
        assert brought()
        assert file.read_bytes() == right


def test_a_file_that_differs_from_its_pin_is_not_read(hub: Hub, tmp_path: Path) -> None:
    brought()
    file = snapshot() / "config.json"
    file.resolve().write_bytes(file.read_bytes() + b" ")
    with pytest.raises(KbprocError, match=r"config\.json is not the file that was installed") as e:
        catalogue.load(ModelSpec(name=NAME), tmp_path / "exported")
    assert e.value.type == "model.unavailable"


def test_a_model_stays_at_its_commit_until_a_revision_is_named(hub: Hub, tmp_path: Path) -> None:
    brought()
    first = hub.repositories[NAME].main
    second = hub.repositories[NAME].commit(repository(tmp_path / "second", query="query: "))
    assert not brought()
    steps = install.effects(f"{NAME}@main")
    assert f"at revision {second}" in steps[0]
    assert steps[-1].startswith(f"replace revision {first}")
    assert brought(f"{NAME}@main")
    pin = pins.pin_of(NAME)
    assert pin is not None and (pin.commit, pin.revision) == (second, "main")
    assert brought(f"{NAME}@{first[:10]}"), "back again"
    assert weights.locate(f"{NAME}@{second}").folder is None
    error = refused(f"{NAME}@no-such-branch")
    assert "has no revision no-such-branch" in error.message


# ---------------------------------------------------------------------- faults of the hub


def test_a_cut_connection_goes_on_where_it_was_cut(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "DOWNLOAD_CHUNK_SIZE", 1000)
    hub.cuts += ["model.safetensors"] * 2
    assert brought()
    size = len(hub.repositories[NAME].commits[hub.repositories[NAME].main]["model.safetensors"])
    first = size // 2 // 1000 * 1000
    assert hub.ranges == [f"bytes={first}-", f"bytes={first + (size - first) // 2 // 1000 * 1000}-"]


def test_a_connection_that_stays_cut_leaves_nothing(hub: Hub) -> None:
    for path, word in (("/cdn/", "disconnected"), (f"/api/models/{NAME}", "disconnected")):
        hub.silent = {path}
        error = refused()
        assert (error.type, error.retryable) == ("network.failed", True)
        assert f"{hub.url} can't be reached" in error.message and word in error.message
        assert not list(cache.hub_cache().rglob("*.incomplete"))
    hub.silent.clear()
    assert brought()


def test_a_model_that_was_renamed_comes_under_its_old_name(hub: Hub, tmp_path: Path) -> None:
    hub.renamed["someone/old-name"] = NAME
    assert brought("someone/old-name")
    assert snapshot("someone/old-name").name == hub.repositories[NAME].main
    assert catalogue.load(ModelSpec(name="someone/old-name"), tmp_path / "exported").dim == 32


def test_what_is_not_there_is_named(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    error = refused("someone/no-such-model")
    assert (error.type, error.retryable) == ("model.unavailable", False)
    assert "has no model someone/no-such-model" in error.message
    hub.vanished.add("tokenizer.json")
    error = refused()
    assert (error.type, "answers 404" in error.message) == ("network.failed", True)
    hub.vanished.clear()
    assert brought()


@pytest.mark.parametrize("file", ["model.safetensors", "tokenizer.json"])
def test_a_file_with_another_hash_is_not_kept(hub: Hub, file: str) -> None:
    hub.lies.add(file)
    error = refused()
    assert error.type == "model.unavailable"
    assert f"{file} of {NAME} is not the file that was announced" in error.message
    hub.lies.clear()
    assert brought(), "the wrong file does not stay in the cache"


def test_who_may_not_see_a_model_learns_what_to_do(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    for access, words in (
        ("private", "has no model someone/tiny-model, or shows it only"),
        ("gated", "is gated"),
    ):
        hub.repositories[NAME].access = access
        error = refused()
        assert (error.type, error.field, error.retryable) == (
            "model.unavailable",
            "$.params.name",
            False,
        )
        assert words in error.message
        assert "HF_TOKEN" in str(error.hint)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert brought()
    assert TOKEN not in pins.pins_file().read_text()
    for request, headers in zip(hub.requests, hub.headers, strict=True):
        assert not ("/cdn/" in request and "authorization" in headers), "the hub alone gets it"


def test_a_hub_that_asks_to_wait_is_quoted(hub: Hub) -> None:
    hub.refusals.append((429, {"retry-after": "7"}))
    error = refused()
    assert (error.type, error.retry_after_ms, error.retryable) == ("network.failed", 7000, True)
    now, later = "Tue, 10 Nov 2026 10:00:00 GMT", "Tue, 10 Nov 2026 10:02:00 GMT"
    hub.refusals.append((429, {"date": now, "retry-after": later}))
    assert refused().retry_after_ms == 120_000
    hub.refusals.append((503, {}))
    assert "answers 503" in refused().message


def test_a_file_for_which_the_hub_asks_to_wait_comes_later(hub: Hub) -> None:
    hub.busy = ["/cdn/"]
    assert brought()
    assert sum("/cdn/" in request for request in hub.requests) == 2


def test_no_hub_is_a_failure_of_the_network(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    url = hub.url

    def ask(request: client.Request, tell: Any, cancelled: Any) -> client.HubModel:
        there = msgspec.structs.replace(request, endpoint="http://127.0.0.1:9")
        return client.ask(there, tell)

    monkeypatch.setattr(bringing, "ask_in_child", ask)
    error = refused()
    assert (error.type, error.retryable) == ("network.failed", True)
    assert "http://127.0.0.1:9 can't be reached" in error.message and url not in error.message
    monkeypatch.setattr(bringing, "is_offline", lambda: True)
    assert "HF_HUB_OFFLINE" in refused().message


# ---------------------------------------------------------------------- what is refused


def test_what_can_not_be_used_is_refused_before_its_weights_come(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bringing, "_extras", list)

    def changed(number: int, **config: Any) -> Path:
        folder = repository(tmp_path / f"changed-{number}")
        file = folder / "config.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), **config}))
        return folder

    cases: list[tuple[Path, str]] = []
    pickled = changed(1)
    (pickled / "model.safetensors").unlink()
    cases.append((pickled, "has its weights in pytorch_model.bin only: a pickle"))
    cases.append((changed(2, model_type="qwen3"), "is of the architecture qwen3, and ships no"))
    slow = changed(3)
    (slow / "tokenizer.json").unlink()
    cases.append((slow, "has no tokenizer.json"))
    empty = changed(4)
    for file in ("model.safetensors", "pytorch_model.bin"):
        (empty / file).unlink()
    cases.append((empty, "has neither safetensors nor a graph"))
    bare = changed(5)
    (bare / "config.json").unlink()
    cases.append((bare, "has no config.json"))
    graphed = changed(7, model_type="mpnet")
    (graphed / "model.onnx").write_bytes(b"graph")
    cases.append((graphed, "runs by the graph that it ships (model.onnx)"))
    sorts = changed(
        6, architectures=["BertForSequenceClassification"], id2label={"0": "a", "1": "b"}
    )
    (sorts / "modules.json").unlink()
    cases.append((sorts, "sorts texts into 2 classes"))
    for number, (folder, words) in enumerate(cases):
        hub.add(f"someone/{number}", folder)
        error = refused(f"someone/{number}")
        assert words in error.message, words
        assert (error.type, error.field, error.retryable) == (
            "model.unavailable",
            "$.params.name",
            False,
        )
        assert error.hint
    assert not any("/cdn/" in request for request in hub.requests)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("BAAI/bge-small-en-v1.5", HubName("BAAI/bge-small-en-v1.5")),
        ("a/b@v1.0", HubName("a/b", "v1.0")),
        ("a/b@refs/pr/1", HubName("a/b", "refs/pr/1")),
        *((text, None) for text in ("all-MiniLM-L6-v2", "/a/b", "./a/b", "a/b/c", "a/..", "~/a")),
        *((text, None) for text in ("a/b@", "a/b@../c", "", "a//b", "a/b--c", "a b/c")),
    ],
)
def test_a_name_on_the_hub_is_no_path(text: str, name: HubName | None) -> None:
    assert hub_name(text) == name


# ---------------------------------------------------------------------- families


POOLED = {"mean": lambda x: x.mean(0), "cls": lambda x: x[0]}
BGE = "Represent this sentence for searching relevant passages: "


def own_vector(folder: Path, pooling: str, text: str) -> Any:
    """Returns the vector of a BERT from its formulas."""
    from tokenizers import Tokenizer

    words = Tokenizer.from_file(str(folder / "tokenizer.json"))
    words.enable_truncation(64)
    vector = POOLED[pooling](models.states(folder, words.encode(text).ids))
    return vector / np.linalg.norm(vector)


@pytest.mark.parametrize(
    ("name", "pooling", "prompts", "query", "document"),
    [
        ("someone/mean", "mean", {}, "", ""),
        ("someone/cls", "cls", {"query": "ask: ", "passage": "text: "}, "ask: ", "text: "),
        # The cards of these models name prompts; some of their files do not.
        ("BAAI/bge-small-en-v1.5", "cls", {}, BGE, ""),
        ("Snowflake/snowflake-arctic-embed-m-v1.5", "cls", {}, BGE, ""),
        ("Snowflake/snowflake-arctic-embed-m-v2.0", "cls", {}, "query: ", ""),
        ("intfloat/e5-small-v2", "mean", {}, "query: ", "passage: "),
        ("intfloat/multilingual-e5-small", "mean", {}, "query: ", "passage: "),
        ("mixedbread-ai/mxbai-embed-large-v1", "cls", {}, BGE, ""),
        ("thenlper/gte-small", "mean", {"query": "", "document": ""}, "", ""),
    ],
)
def test_each_family_is_read_as_its_files_and_card_say(
    hub: Hub,
    tmp_path: Path,
    name: str,
    pooling: str,
    prompts: dict[str, str],
    query: str,
    document: str,
) -> None:
    folder = repository(tmp_path / "family", pooling, **prompts)
    hub.add(name, folder)
    brought(name)
    card = curated.cards().get(name)
    assert card is None or card.pooling == pooling
    embedder = catalogue.load(ModelSpec(name=name), tmp_path / "exported")
    right = own_vector(folder, pooling, query + "how do i install git")
    assert embedder.embed_query("how do i install git") @ right > 0.97
    right = own_vector(folder, pooling, document + "a backup")
    assert embedder.embed("a backup") @ right > 0.97
    others = [own_vector(folder, other, document + "a backup") for other in POOLED]
    assert min(embedder.embed("a backup") @ other for other in others) < 0.97, "pooling matters"
    prefix = max(len(query.replace(" ", "")), len(document.replace(" ", "")))
    assert embedder.max_tokens == 64 - prefix, "the longer prefix takes its part"


def test_a_length_of_the_files_holds(hub: Hub, tmp_path: Path) -> None:
    folder = repository(tmp_path / "short")
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 20}')
    hub.add("someone/short", folder)
    brought("someone/short")
    embedder = catalogue.load(ModelSpec(name="someone/short"), tmp_path / "exported")
    assert embedder.max_tokens == 20


@pytest.mark.parametrize(
    ("architecture", "graph", "output"),
    [
        ("mpnet", "onnx/model.onnx", "last_hidden_state"),
        ("xlm-roberta", "model.onnx", "token_embeddings"),
        ("gemma3_text", "onnx/model_quantized.onnx", "sentence_embedding"),
    ],
)
def test_other_architectures_run_by_the_graph_that_they_ship(
    hub: Hub, tmp_path: Path, architecture: str, graph: str, output: str
) -> None:
    name = f"someone/{architecture}"
    folder = models.shipped(tmp_path / "graph", output=output, opset=18)
    models.sentence(folder, ("Pooling", {"pooling_mode": "mean"}), prompts={"query": "q: "})
    (folder / "config.json").write_text(json.dumps({"model_type": architecture}))
    if "quantized" not in graph:
        models.put_beside(folder, factor=1)
    for file in (folder / "onnx").iterdir():
        is_graph = file.suffix == ".onnx"
        file.rename(folder / graph if is_graph else (folder / graph).with_name(file.name))
    (folder / "model.safetensors").unlink()
    hub.add(name, folder)
    brought(name)
    pin = pins.pin_of(name)
    assert pin is not None and graph in pin.files
    embedder = catalogue.load(ModelSpec(name=name), tmp_path / "exported")
    table = np.frombuffer((folder / "table.npy").read_bytes(), np.float32).reshape(200, 12)
    ids = embedder_ids(folder, "q: a backup")
    right = table[ids].sum(0) / np.linalg.norm(table[ids].sum(0))
    assert embedder.embed_query("a backup") @ right > 0.97


def embedder_ids(folder: Path, text: str) -> list[int]:
    from tokenizers import Tokenizer

    return list(Tokenizer.from_file(str(folder / "tokenizer.json")).encode(text).ids)


def test_a_vocabulary_serves_a_bert_without_a_tokenizer(hub: Hub, tmp_path: Path) -> None:
    whole = repository(tmp_path / "whole")
    bare = repository(tmp_path / "bare")
    words = json.loads((bare / "tokenizer.json").read_text())["model"]["vocab"]
    (bare / "vocab.txt").write_text("\n".join(sorted(words, key=lambda word: words[word])))
    (bare / "tokenizer.json").unlink()
    vectors = []
    for folder in (whole, bare):
        hub.add(f"someone/{folder.name}", folder)
        brought(f"someone/{folder.name}")
        spec = ModelSpec(name=f"someone/{folder.name}")
        vectors.append(catalogue.load(spec, tmp_path / "exported").embed("Ünïted 东京 backups run"))
    assert vectors[0].tolist() == vectors[1].tolist()


# ---------------------------------------------------------------------- cross-encoders


READER = "cross-encoder/ms-marco-MiniLM-L6-v2"  # which docs/search.md installs
QUESTION = "git backup kettle spout tea"
SHARES = range(7)  # how often the word stands in a text that the cross-encoder is fond of


@pytest.fixture
def fond(hub: Hub, tmp_path: Path) -> Path:
    """A cross-encoder on the hub whose score grows with the share of a word, by its weights."""
    folder = rerank.fond_of(tmp_path / "fond", "runner")
    hub.add(READER, folder, licence="apache-2.0")
    return folder


def block_of(language: str) -> str:
    """Returns the block of docs/search.md that is about this cross-encoder."""
    page = pages.blocks(REPO / "docs" / "search.md")
    [text] = [one.text for one in page if one.language == language and READER in one.text]
    return text


def text_of(share: int) -> str:
    return "Git backup " + " ".join(["runner"] * share + ["tested"] * (6 - share))


def shares(session: Session, **params: Any) -> list[int]:
    """Returns how often the word stands in each hit, in the order of the hits."""
    hits = session.data("search", query=QUESTION, limit=20, **params)["results"]
    return [hit["text"].count("runner") for hit in hits]


def test_a_cross_encoder_is_installed_by_its_name_and_reads_hits(
    hub: Hub, fond: Path, tmp_path: Path, open_session: OpenSession
) -> None:
    session = open_session(rerank=Rerank(model=READER))
    texts = [{"title": f"Note {share}", "text": text_of(share)} for share in SHARES]
    session.data("doc.create", documents=texts)
    session.embedded()
    error = session.error("search", query=QUESTION, fusion="rerank")
    assert f"{READER} is not installed" in error["message"]
    assert f"kbproc model install {READER}" in error["hint"]
    done = session.data("model.install", name=READER)
    assert (done["changed"], done["kind"], done["licence"]) == (True, "reranker", "apache-2.0")
    assert done["current"]
    assert done["revision"] == hub.repositories[READER].main
    example = json.loads(block_of("json"))
    assert (example.keys(), example["kind"]) == (done.keys(), done["kind"])
    [entry] = [one for one in session.data("model.list") if one["name"] == READER]
    assert (entry["task"], entry["status"], entry["current"]) == ("reranker", "ready", True)
    assert entry["cost_ms"] == done["cost_ms"] > 0
    [again] = [one for one in session.data("model.list", measure=True) if one["name"] == READER]
    assert (again["cost_ms"] > 0, again["measured_here"]) == (True, None)
    hits = session.data("search", query=QUESTION, fusion="rerank", limit=20)["results"]
    assert [hit["text"] for hit in hits] == [text_of(share) for share in reversed(SHARES)]
    for share, hit in zip(reversed(SHARES), hits, strict=True):
        own = logistic(models.logit(fond, QUESTION, f"Note {share}\n{text_of(share)}"))
        assert hit["score"] == pytest.approx(own, abs=0.03)


def test_a_cross_encoder_reads_where_the_answer_is_in_doubt_and_its_time_lasts(
    fond: Path, tmp_path: Path, open_session: OpenSession
) -> None:
    folder = tmp_path / "store"
    session = open_session(folder)
    texts = [{"title": f"Note {share}", "text": text_of(share)} for share in SHARES]
    session.data("doc.create", documents=texts)
    session.embedded()
    reply = session.ask("model.install", name=READER)["result"]
    assert f"KBPROC_RERANK_MODEL={READER}" in reply["meta"]["hint"]
    assert not reply["data"]["current"]
    blended = shares(session)
    session.close()
    settings = tomllib.loads(block_of("toml"))
    write_settings(folder / "store.toml", settings["search"], "search")
    for seconds, order in ((60.0, [*reversed(SHARES)]), (1e-9, blended)):
        write_settings(folder / "store.toml", {**settings["rerank"], "budget_s": seconds}, "rerank")
        session = open_session(folder)
        assert shares(session) == order
        session.close()
    assert blended != [*reversed(SHARES)]


# ---------------------------------------------------------------------- in its process


def test_the_process_that_asks_sends_nothing_else(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library's own habits are off there: reports, looks for versions, names of agents."""
    monkeypatch.undo()
    monkeypatch.setattr(host, "_BEFORE", {})
    for kind in ("CONFIG", "DATA", "CACHE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / kind.lower()))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setenv("AI_AGENT", "an-agent-that-is-nobodys-business")
    steps: list[Any] = []
    assert brought(steps=steps)
    assert snapshot().is_relative_to(tmp_path / "hf" / "hub")
    assert steps[-1][1] == steps[-1][2] > 0
    for request, headers in zip(hub.requests, hub.headers, strict=True):
        path = request.split(" ")[1]
        assert path.startswith((f"/api/models/{NAME}", f"/{NAME}/resolve/", f"/cdn/{NAME}/"))
        assert "agent/" not in headers["user-agent"]
        assert set(headers) <= {
            *("host", "accept", "accept-encoding", "connection", "user-agent", "authorization"),
            *("x-amzn-trace-id", "x-hf-download-counter", "range"),
        }
    assert not list((tmp_path / "hf").glob(".agent*"))
    assert os.environ["HF_HUB_OFFLINE"] == "1", "this process itself asks nobody"
