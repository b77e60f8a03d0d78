"""Endpoints of embeddings as people run them: what each takes, refuses and limits."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kbproc.base.errors import KbprocError
from kbproc.engine.models import apis
from kbproc.engine.models.apis import api_of
from kbproc.engine.models.catalogue import KEY_VARIABLE, load
from kbproc.engine.models.http import TRIES, EndpointEmbedder
from kbproc.engine.models.interface import ModelSpec, Part
from kbproc.engine.models.pace import MOST_TEXTS, Pace
from tests.kit.embeddings import DIM, KEY, SERVERS, Embeddings, Reply, vector
from tests.kit.patience import LONG, PATIENCE, until
from tests.kit.start import REPO

FAULTS = 1000 if LONG else 300
LONG_TEXT = "word " * 1000  # more than any of the servers reads


class Time:
    """A clock that only `sleep` moves, beside the time that has really passed."""

    def __init__(self) -> None:
        self.slept = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.slept

    def sleep(self, seconds: float) -> None:
        self.slept += seconds


@pytest.fixture
def endpoint() -> Iterator[Embeddings]:
    with Embeddings() as server:
        yield server


def embedder_of(endpoint: Embeddings, **changes: Any) -> EndpointEmbedder:
    clock = Time()
    settings: dict[str, Any] = {
        "name": "m",
        "url": endpoint.url,
        "api_key": KEY,
        "dim": DIM,
        "sleep": clock.sleep,
        "pace": Pace(clock=clock, sleep=clock.sleep),
        **changes,
    }
    return EndpointEmbedder(**settings)


def texts_of(count: int) -> list[str]:
    return [f"text {n} of some words" for n in range(count)]


def filled(model: EndpointEmbedder, texts: list[str]) -> tuple[dict[int, Any], dict[int, Any]]:
    """Returns the vector of each text, and the errors; a text in two parts fails the test."""
    vectors: dict[int, Any] = {}
    errors: dict[int, Any] = {}
    for part in model.filler.embed(texts):
        numbers = range(part.first, part.last)
        assert not {*numbers} & {*vectors, *errors}
        if isinstance(part.outcome, KbprocError):
            errors |= dict.fromkeys(numbers, part.outcome)
        else:
            vectors |= dict(zip(numbers, part.outcome, strict=True))
    return vectors, errors


def assert_right(vectors: dict[int, Any], texts: list[str]) -> None:
    for number, one in vectors.items():
        assert np.allclose(one, vector(texts[number]), atol=1e-6), number


@pytest.mark.parametrize("name", SERVERS)
def test_each_kind_of_server_is_understood(name: str) -> None:
    """The filler learns its limits; a text that it does not take holds no other up."""
    kind = SERVERS[name]
    api = {"Voyage": apis.VOYAGE, "Jina": apis.JINA}.get(name)
    texts = texts_of(700)
    texts[333] = LONG_TEXT
    with Embeddings(kind) as endpoint:
        model = embedder_of(endpoint, api=api, dim=None)
        vectors, errors = filled(model, texts)
        assert (model.dim, sorted(errors), len(vectors)) == (DIM, [333], 699)
        assert_right(vectors, texts)
        assert np.allclose(model.embed_query("a query"), vector("a query"), atol=1e-6)
        assert endpoint.keys[0] == (KEY if kind.key == "api-key" else f"Bearer {KEY}")
        assert max(endpoint.batches) <= 2 * kind.most
        good = [size for size in endpoint.batches if size <= kind.most]
        assert max(good) >= min(kind.most, MOST_TEXTS) // 2
        roles = {str(body.get("input_type") or body.get("task")) for body in endpoint.bodies}
        assert len(roles) == (2 if name in {"Voyage", "Jina", "Cohere"} else 1)
        model.close()
    operations = (REPO / "docs" / "operations.md").read_text()
    assert f"| {name} |" in operations, "the table of what was tried"


def test_an_address_says_how_it_is_asked() -> None:
    ways = {
        "https://api.openai.com/v1": "openai",
        "http://localhost:11434": "openai",
        "http://localhost:11434/api/embed": "ollama",
        "http://localhost:8080/embed/": "tei",
        "https://api.cohere.com/v2/embed": "cohere",
        "https://api.voyageai.com/v1": "voyage",
        "https://api.jina.ai/v1/embeddings": "jina",
        "http://[": "openai",
    }
    assert {url: api_of(url).name for url in ways} == ways


# ------------------------------------------------------------------------------ keys


def test_a_key_comes_from_a_file_or_the_environment(
    endpoint: Embeddings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "key"
    file.write_text("sk-of-the-file\n")
    spec = ModelSpec(kind="openai", name="m", url=endpoint.url, dim=DIM, api_key_file=str(file))

    def key_sent() -> str | None:
        model = load(spec, tmp_path)
        model.embed("x")
        model.close()
        return endpoint.keys[-1]

    with pytest.raises(KbprocError, match="mode 0600"):
        key_sent()
    file.chmod(0o600)
    assert key_sent() == "Bearer sk-of-the-file"
    monkeypatch.setenv(KEY_VARIABLE, "sk-of-the-environment")
    assert key_sent() == "Bearer sk-of-the-environment"
    assert "sk-" not in repr(spec)


@pytest.mark.parametrize("status", [400, 401, 403, 429, 500])
def test_what_a_refusal_repeats_is_not_shown(endpoint: Embeddings, status: int) -> None:
    endpoint.script = lambda texts: Reply(status, {"error": f"the key {KEY} for {texts}"})
    model = embedder_of(endpoint)
    for ask in (lambda: model.embed("x"), lambda: filled(model, ["my secret text"])):
        with pytest.raises(KbprocError) as caught:
            ask()
        error = caught.value
        words = f"{error.message}{error.hint}{error.detail}{error!r}{error.args}"
        assert error.type == "model.unavailable" and KEY not in words and "secret" not in words
    model.close()


# ------------------------------------------------------------------------ refusals


def test_an_endpoint_that_refuses_everything_blames_no_text(endpoint: Embeddings) -> None:
    endpoint.script = lambda texts: Reply(400, {"error": "no such model"})
    model = embedder_of(endpoint)
    with pytest.raises(KbprocError, match="answered 400") as caught:
        filled(model, texts_of(100))
    assert "max_tokens" in caught.value.hint and len(endpoint.bodies) < 12
    model.close()


def test_a_text_on_which_the_endpoint_always_fails_holds_no_other_up(endpoint: Embeddings) -> None:
    """Such as those of which a model makes NaN."""
    endpoint.script = lambda texts: Reply(500, {}) if "text 7 of some words" in texts else None
    model, texts = embedder_of(endpoint), texts_of(40)
    vectors, errors = filled(model, texts)
    assert (list(errors), len(vectors)) == ([7], 39)
    assert len(endpoint.bodies) < 40
    model.close()


def test_a_used_up_quota_is_no_reason_to_wait(endpoint: Embeddings) -> None:
    endpoint.script = lambda texts: Reply(429, {"error": {"code": "insufficient_quota"}})
    model = embedder_of(endpoint)
    with pytest.raises(KbprocError) as caught:
        filled(model, texts_of(3))
    assert "quota" in caught.value.hint and caught.value.retryable is False
    assert len(endpoint.bodies) == 1
    model.close()


@pytest.mark.parametrize(("headers", "seconds"), [({"retry-after-ms": "1500"}, 1.5), ({}, 1.0)])
def test_an_endpoint_that_is_asked_too_often_is_waited_for(
    endpoint: Embeddings, headers: dict[str, str], seconds: float
) -> None:
    refusals = [Reply(429, {}, headers)]
    endpoint.script = lambda texts: refusals.pop() if refusals else None
    clock = Time()
    model = embedder_of(endpoint, pace=Pace(clock=clock, sleep=clock.sleep))
    vectors, errors = filled(model, texts_of(30))
    assert len(vectors) == 30 and not errors
    assert seconds - 0.5 < clock.slept <= seconds
    refusals.append(Reply(429, {}, {"retry-after": "999"}))
    with pytest.raises(KbprocError, match="answered 429"):
        filled(model, texts_of(3))
    model.close()


def test_an_outage_is_an_error_after_some_tries(endpoint: Embeddings) -> None:
    endpoint.script = lambda texts: Reply(503, {})
    model = embedder_of(endpoint)
    with pytest.raises(KbprocError, match="answered 503"):
        filled(model, texts_of(3))
    assert len(endpoint.bodies) == TRIES
    model.close()
    with pytest.raises(KbprocError, match="no longer asked"):
        filled(model, texts_of(3))


# ------------------------------------------------------------------------ searches


def test_a_search_does_not_wait_for_a_fill(endpoint: Embeddings) -> None:
    """Requests of a fill hang, or it rests; a query is answered over a connection of its own."""
    hanging, released = threading.Event(), threading.Event()
    closed: list[str] = []

    def fill() -> None:
        try:
            filled(model, texts_of(4))
        except KbprocError as error:
            closed.append(error.message)

    def hang(texts: list[str]) -> Reply | None:
        if "a query" not in texts:
            hanging.set()
            assert released.wait(PATIENCE)
        return None

    model = embedder_of(endpoint, pace=Pace())
    endpoint.script = hang
    threads = [threading.Thread(target=fill) for _ in range(20)]
    for thread in threads:
        thread.start()
    assert hanging.wait(PATIENCE)
    assert model.embed_query("a query").shape == (DIM,)
    model._pace.limited(100_000.0)
    assert model.embed_query("a query").shape == (DIM,)
    released.set()
    model.close()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    assert set(closed) == {"The endpoint is no longer asked."}


def test_a_fill_lets_a_search_go_first_that_was_refused(endpoint: Embeddings) -> None:
    """The query's next try comes before requests of the fill, because the endpoint limits both."""
    order: list[str] = []
    refusals = [Reply(429, {})]

    def limited(texts: list[str]) -> Reply | None:
        order.append(texts[0])
        return refusals.pop() if refusals else None

    def wait(seconds: float) -> None:
        filling.start()
        until(lambda: model._pace._changed._waiters, "a fill that waits")  # type: ignore[attr-defined]

    endpoint.script = limited
    model = embedder_of(endpoint, sleep=wait, pace=Pace())
    filling = threading.Thread(target=filled, args=(model, ["of the fill"]))
    model.embed_query("a query")
    filling.join(PATIENCE)
    assert order == ["a query", "a query", "of the fill"]
    model.close()


# ---------------------------------------------------------------------- faults at random


def at_random(chance: random.Random, faults: list[int], most: int) -> Any:
    """Answers by chance as servers and the ways to them fail, so often at most."""

    def answer(texts: list[str]) -> Reply | None:
        if faults[0] >= most or chance.random() < 0.4:
            return None
        faults[0] += 1
        good = {"data": [{"index": i, "embedding": [1.0] * DIM} for i in range(len(texts))]}
        return chance.choice(
            [
                Reply(429, {}, {"retry-after": "2"}),
                Reply(429, {}),
                Reply(500, {"error": "boom"}),
                Reply(502, b"<html>"),
                Reply(503, {}, {"retry-after": "1"}),
                Reply(408, {}),
                Reply(200, None),
                Reply(200, good, {}, keep=40),
                Reply(200, {"data": good["data"][1:]}),
                Reply(200, b"<html>a proxy</html>"),
                Reply(413, {"error": "too large"}) if len(texts) > 1 else Reply(504, {}),
            ]
        )

    return answer


def test_after_many_faults_each_text_has_its_vector_once(endpoint: Embeddings) -> None:
    faults = [0]
    endpoint.script = at_random(random.Random(67), faults, FAULTS)
    model, texts = embedder_of(endpoint), texts_of(1200)
    vectors: dict[int, Any] = {}
    remaining = list(range(len(texts)))
    claiming = threading.Lock()

    def fill() -> None:
        """Works as a worker does: takes some texts, and gives back those that were not embedded."""
        while True:
            with claiming:
                mine = [remaining.pop() for _ in range(min(len(remaining), model.filler.texts))]
            if not mine:
                return
            done: set[int] = set()
            try:
                for part in model.filler.embed([texts[n] for n in mine]):
                    note(part, mine, done)
            except KbprocError as error:
                assert error.type == "model.unavailable"
            with claiming:
                remaining.extend(n for n in mine if n not in done)

    def note(part: Part, mine: list[int], done: set[int]) -> None:
        if isinstance(part.outcome, KbprocError):
            return
        with claiming:
            for n, one in zip(mine[part.first : part.last], part.outcome, strict=True):
                assert n not in vectors
                vectors[n] = one
                done.add(n)

    threads = [threading.Thread(target=fill) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    assert faults == [FAULTS]
    assert sorted(vectors) == list(range(len(texts)))
    assert_right(vectors, texts)
    model.close()
