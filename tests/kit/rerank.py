"""Rerankers to test with: a small cross-encoder in a folder, and an endpoint on this machine."""

from __future__ import annotations

import contextlib
import http.server
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from kbproc.settings.config import Rerank
from tests.kit.patience import LIVES

KEY = "rk-a-secret-that-nobody-may-read"
_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
_WORDS = "how do i install git on the a is backup archive make fetch each night run runner tested"


def cross_encoder(
    folder: Path,
    *,
    labels: int = 1,
    spread: float = 0.3,
    max_tokens: int = 64,
    layers: int = 2,
    hidden: int = 32,
) -> Path:
    """A BERT of fixed chance with one label. `spread`: of its weights; some logits are large."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    pieces = [*_SPECIAL, *_LETTERS, *(f"##{letter}" for letter in _LETTERS), *_WORDS.split()]
    vocabulary = {piece: id for id, piece in enumerate(dict.fromkeys(pieces))}
    fast = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    fast.normalizer = normalizers.BertNormalizer(lowercase=True)
    fast.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    fast.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(name, vocabulary[name]) for name in ("[CLS]", "[SEP]")],
    )
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=fast,
        unk_token="[UNK]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_max_length=max_tokens,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )
    torch.manual_seed(7)
    config = transformers.BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=max(2, hidden // 32),
        intermediate_size=4 * hidden,
        max_position_embeddings=max_tokens,
        num_labels=labels,
        initializer_range=spread,
    )
    transformers.BertForSequenceClassification(config).eval().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


# A request's query and documents → what is answered: a status, headers and a body.
Reply = tuple[int, dict[str, str], Any]
Script = Callable[[str, list[str]], Reply]


def shared_words(query: str, text: str) -> float:
    """The share of the query's words that a text holds."""
    words = set(query.lower().split())
    return len(words & set(text.lower().replace(".", " ").replace(",", " ").split())) / len(words)


def judged(query: str, documents: list[str]) -> Reply:
    """Scores by the words in common; the last text comes first."""
    return scored([shared_words(query, text) for text in documents])


def scored(scores: Sequence[Any]) -> Reply:
    results = [{"index": i, "relevance_score": score} for i, score in enumerate(scores)]
    return 200, {}, {"id": "x", "results": results[::-1], "meta": {"billed_units": {}}}


class Endpoint(http.server.ThreadingHTTPServer):
    """`script`: how it answers. `requests`: what it was asked, `keys`: under which key."""

    daemon_threads = True

    def __init__(self, script: Script) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.script = script
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.released = threading.Event()
        self.url = f"http://127.0.0.1:{self.server_port}/v1"

    @property
    def settings(self) -> Rerank:
        return Rerank(url=self.url, model="toy", api_key=KEY)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """The client has closed its connection."""


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Endpoint

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        server = self.server
        server.requests.append(request)
        server.keys.append(self.headers.get("authorization"))
        if self.path != "/v1/rerank":
            status, headers, answer = 404, {}, b""
        else:
            status, headers, answer = server.script(request["query"], request["documents"])
        self.send_response(status)
        if answer is drip:
            self.end_headers()
            with contextlib.suppress(OSError):
                drip(self)
            return
        body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        for name, value in {"content-length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def drip(handler: _Handler) -> None:
    """A body that never ends, a byte at a time."""
    while not handler.server.released.wait(0.01):
        handler.wfile.write(b" ")


def silent(server: list[Endpoint]) -> Script:
    """Returns a script that answers when the test is over; `server` gets the endpoint later."""

    def script(query: str, documents: list[str]) -> Reply:
        server[0].released.wait(LIVES)
        return judged(query, documents)

    return script


@contextlib.contextmanager
def endpoint(script: Script = judged) -> Iterator[Endpoint]:
    with Endpoint(script) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.released.set()
            server.shutdown()
            thread.join()
