"""Judges texts by a cross-encoder from a folder, which is exported and loaded when first needed.

The folder of an exported one holds model.onnx, with int8 weights, tokenizer.json and
reranker.json. onnxruntime reads each pair by itself, on one thread, because with dynamic int8 a
pair's logit depends on the other pairs of its batch. Two threads read at once, in order, so that
what was read when the time is over is the beginning of the texts.

The export runs in a process of its own: `python -m kbproc.engine.models.reranking.crossencoder`.
An exported cross-encoder counts only if it gives the model's own scores.
"""

from __future__ import annotations

import logging
import math
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from kbproc.base.durable import replace
from kbproc.base.errors import KbprocError
from kbproc.base.threads import map_ahead
from kbproc.base.values import NOT_READABLE, decoder
from kbproc.engine.models import bert, exporting
from kbproc.engine.models.exporting import FULL, Job
from kbproc.engine.models.hub import pins
from kbproc.engine.models.hub.names import hub_name
from kbproc.engine.models.onnx import MODEL, TOKENIZER, session, tokenizer
from kbproc.engine.models.reranking.judgements import Judgements
from kbproc.engine.models.sentence import obstacles_to_bert, read_sentence
from kbproc.engine.models.weights import LocalModel, Need, file_stem, locate, require

_logger = logging.getLogger(__name__)

FORMAT = 1
META = "reranker.json"
OUTPUT = "logit"
# The greatest differences from the model's own scores and logits. Scores alone are not enough: a
# model that is sure of all these pairs has scores next to 0 and 1, whatever its logits.
_MOST_DIFFERENCE = {"int8": (0.02, 0.25), "fp32": (0.0005, 0.005)}
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


_PASSAGE = "The backup runs each night, and is tested once a month on another machine. " * 9
_MEASURED = 5
_THREADS = 2  # pairs that are read at once


class CrossEncoder:
    """The reranker of a folder; `prepare` or the first search exports and loads it."""

    def __init__(
        self,
        named: str,
        cache: Path,
        candidates: int,
        timeout_s: float,
        budget_s: float | None = None,
    ) -> None:
        """`named`: a folder, or the name of a model of the hub, which may be installed later."""
        self._named = named
        self._cache = cache
        self.candidates = candidates
        self.budget_s = budget_s
        self._timeout_s = timeout_s
        self._closed = threading.Event()
        self._loading = threading.Lock()
        self._model: OnnxCrossEncoder | None = None
        self._judgements = Judgements()

    @cached_property
    def _source(self) -> LocalModel:
        return located(self._named)

    @cached_property
    def _exported(self) -> Path:
        return exported_folder(self._cache, self._source)

    @property
    def problem(self) -> KbprocError | None:
        try:
            self._source  # noqa: B018  it raises where there is no model
        except KbprocError as error:
            return error
        return None

    @property
    def name(self) -> str | None:
        return self._named if self.problem else self._source.name

    @property
    def is_ready(self) -> bool:
        return self.problem is None and read_meta(self._exported) is not None

    def judge(self, query: str, texts: Sequence[str]) -> list[float]:
        """Judges as Reranker.judge does, each text by itself and in time."""
        model = self._load()
        judged = self._judged(model, query, texts, time.monotonic() + self._timeout_s)
        if len(judged) < len(texts):
            raise KbprocError(
                "model.unavailable",
                f"{self.name} did not read all candidates within {self._timeout_s:g} seconds.",
                hint="Raise rerank.timeout_s, or lower rerank.candidates.",
            )
        return judged

    def judge_within(self, query: str, texts: Sequence[str], seconds: float) -> list[float]:
        """Judges as Reranker.judge_within does, at least one text."""
        deadline = time.monotonic() + seconds
        return self._judged(self._load(), query, texts, deadline)

    def _judged(
        self, model: OnnxCrossEncoder, query: str, texts: Sequence[str], deadline: float
    ) -> list[float]:
        """Returns the scores of the first texts, up to the one during which the time was over."""
        encoding = model.query(query)

        def score(text: str) -> float:
            [value] = self._judgements.of(
                query, [text], lambda new: [logistic(model.logit(encoding, one)) for one in new]
            )
            return value

        judged = []
        with closing(_in_order(score, texts)) as scores:
            for value in scores:
                judged.append(value)
                if time.monotonic() > deadline:
                    break
        return judged

    def _load(self) -> OnnxCrossEncoder:
        """Returns the model. A search waits for an export that runs, at most `timeout_s`."""
        if (model := self._model) is not None:
            return model
        if not self._loading.acquire(timeout=self._timeout_s):
            raise KbprocError("model.unavailable", f"{self.name} is being prepared.")
        try:
            if self._model is None:
                export(self._source, self._exported, cancelled=self._closed.is_set)
                self._model = OnnxCrossEncoder(self._exported)
            return self._model
        finally:
            self._loading.release()

    def prepare(self) -> None:
        try:
            self._load()
        except KbprocError as error:
            _logger.warning("the cross-encoder is not ready: %s", error.message)

    def close(self) -> None:
        self._closed.set()


class RerankerMeta(msgspec.Struct, frozen=True, kw_only=True):
    """The reranker.json of an exported cross-encoder.

    `max_tokens`: of a query and a text together, special tokens included.

    `parity`: the greatest difference from the model's own scores at export, and from its logits.
    `cost_ms`: see `measure`; None: not measured yet.
    """

    format: int = FORMAT
    name: str
    max_tokens: int
    weights_sha256: str
    precision: str
    parity: tuple[float, float] = (0.0, 0.0)
    cost_ms: float | None = None


_decode_meta = decoder(RerankerMeta).decode


def read_meta(folder: Path) -> RerankerMeta | None:
    """Returns the meta of an exported cross-encoder; None if the folder holds no usable one."""
    try:
        meta = _decode_meta((folder / META).read_bytes())
    except (OSError, *NOT_READABLE):
        return None
    is_whole = (folder / MODEL).is_file() and (folder / TOKENIZER).is_file()
    return meta if is_whole and meta.format == FORMAT else None


def logistic(logit: float) -> float:
    """Returns 1 / (1 + e^−x) without an overflow."""
    if logit >= 0:
        return 1 / (1 + math.exp(-logit))
    grown = math.exp(logit)
    return grown / (1 + grown)


class OnnxCrossEncoder:
    """An exported cross-encoder at work. Any number of threads may call it at once."""

    def __init__(self, folder: Path, *, is_kept: bool = True) -> None:
        """Loads the model; raises model.unavailable. `is_kept`: the folder is used again."""
        meta = read_meta(folder)
        if meta is None:
            raise KbprocError(
                "model.unavailable",
                f"The exported cross-encoder in {folder} is incomplete.",
                hint=f"Remove {folder}: it is exported again.",
            )
        self._session = session(folder, OUTPUT, is_kept=is_kept)
        self._inputs = [node.name for node in self._session.get_inputs()]
        self._tokenizer = tokenizer(folder)
        self._tokenizer.no_truncation()
        self._most = meta.max_tokens
        self._special = self._tokenizer.num_special_tokens_to_add(True)

    def query(self, text: str) -> Any:
        """Returns a query as the model reads it, cut to half of the model's tokens."""
        encoding = self._encode(text)
        encoding.truncate(max(1, (self._most - self._special) // 2))
        return encoding

    def logit(self, query: Any, text: str) -> float:
        """Returns the logit of a text and a query, which `query` returned.

        The part of the text that exceeds max_tokens is not read.
        """
        import numpy as np

        encoding = self._encode(text)
        encoding.truncate(self._most - self._special - len(query.ids))
        pair = self._tokenizer.post_process(query, encoding)
        columns = {
            "input_ids": pair.ids,
            "attention_mask": pair.attention_mask,
            "token_type_ids": pair.type_ids,
        }
        feed = {name: np.array([columns[name]], np.int64) for name in self._inputs}
        return float(self._session.run([OUTPUT], feed)[0][0])

    def _encode(self, text: str) -> Any:
        # Because a lone surrogate has no UTF-8, and the tokenizer refuses it.
        clean = text.encode("utf-8", "replace").decode()
        return self._tokenizer.encode(clean, add_special_tokens=False)


def located(named: str) -> LocalModel:
    """Locates a cross-encoder in a folder, or the installed one of this name on the hub.

    Raises model.unavailable if there is none.
    """
    if (hub := hub_name(named)) is not None:
        pin = pins.pin_of(hub.repository)
        if pin is None or not pin.is_of(hub.revision):
            raise KbprocError(
                "model.unavailable",
                f"The cross-encoder {named} is not installed.",
                hint=f"Install it from the Hugging Face hub: kbproc model install {named}.",
                lasting=True,
            )
        if pin.kind != "reranker":
            raise _wrong(f"{named} is an embedding model, no cross-encoder.")
        return locate(named)
    return _in_folder(Path(os.path.expanduser(named)))  # noqa: PTH111  never raises


def _in_folder(folder: Path) -> LocalModel:
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
    """Returns the folder of the exported model, beside those of embedding models.

    It has a suffix, because one source folder may be exported as either.
    """
    return cache / f"{file_stem(source.name)}-{source.id}-reranker"


def export(source: LocalModel, target: Path, *, cancelled: Callable[[], bool]) -> None:
    """Makes the exported model where it is missing.

    Raises model.unavailable, operation.cancelled.
    """
    if read_meta(target):
        return
    obstacles = ", ".join(obstacles_to_bert(source.folder)) if source.folder else None
    place = str(require(source, Need(obstacles, "export") if obstacles else None))
    job = Job(
        name=source.name,
        source=place,
        target=str(target),
        sha256=source.sha256,
        files=source.files,
        prefixes=source.prefixes,
    )
    module = "kbproc.engine.models.reranking.crossencoder"
    exporting.make(job, module, is_whole=read_meta, cancelled=cancelled)


def measure(exported: Path) -> float:
    """Returns the milliseconds for a passage of some 150 tokens on one thread, and notes them.

    It is the median of several. Raises model.unavailable, store.io.
    """
    model = OnnxCrossEncoder(exported)
    query, times = model.query(PARITY_QUERY), []
    for _ in range(_MEASURED):
        before = time.perf_counter()
        model.logit(query, _PASSAGE)
        times.append(time.perf_counter() - before)
    cost = round(sorted(times)[_MEASURED // 2] * 1000, 1)
    if (meta := read_meta(exported)) is not None:
        content = msgspec.json.encode(msgspec.structs.replace(meta, cost_ms=cost))
        try:
            replace(exported / META, content)
        except OSError as error:
            raise KbprocError(
                "store.io", f"{exported / META} can't be written: {error.strerror}."
            ) from error
    return cost


def _in_order(score: Callable[[str], float], texts: Sequence[str]) -> Generator[float]:
    """Yields the scores of texts in order; starts no thread for a single text."""
    if len(texts) == 1:
        yield score(texts[0])
    else:
        yield from map_ahead(score, texts, threads=_THREADS, name="rerank")


def _wrong(message: str) -> KbprocError:
    hint = "rerank.folder names the folder of a sentence-transformers cross-encoder with one label."
    return KbprocError("model.unavailable", message, hint=hint, lasting=True)


# ------------------------------------------------------------- the rest runs in the child process


class _RerankerGraphs(msgspec.Struct, frozen=True, kw_only=True):
    """The files that were written: fp32/model.onnx, model.onnx with int8 weights, tokenizer.json.

    `logits`: the model's own for the PARITY_TEXTS; None: the fp32 graph computes them.
    """

    exporter: str
    max_tokens: int
    logits: list[float] | None = None


def _export(job: Job, folder: Path) -> None:
    """Writes model.onnx, tokenizer.json and reranker.json; raises model.unavailable."""
    weights = exporting.weights_of(job)
    full = folder / FULL
    full.mkdir()
    source = Path(job.source)
    graphs = (_traced if obstacles_to_bert(source) else _of_bert)(job, folder)
    meta = RerankerMeta(
        name=job.name,
        max_tokens=graphs.max_tokens,
        weights_sha256=weights,
        precision=f"int8-{graphs.exporter}",
    )
    reference = graphs.logits or _logits_of(meta, folder, full)
    if not _agrees(meta, folder, reference):
        exporting.give_up_int8(folder)
        exact = msgspec.structs.replace(meta, precision=f"fp32-{graphs.exporter}")
        if not _agrees(exact, folder, reference):
            raise KbprocError(
                "model.unavailable", f"{job.name} exported to ONNX does not give its own scores."
            )
    shutil.rmtree(full)


def _of_bert(job: Job, folder: Path) -> _RerankerGraphs:
    source = Path(job.source)
    exporting.copy_tokenizer(source, folder)
    try:
        bert.save(source, bert.Writer.score, OUTPUT, *exporting.graph_paths(folder))
    except (LookupError, TypeError, ValueError) as error:
        raise KbprocError(
            "model.unavailable", f"The files of {job.name} are no cross-encoder's: {error}."
        ) from error
    return _RerankerGraphs(
        exporter="bert", max_tokens=min(read_sentence(source).max_tokens, _MOST_TOKENS)
    )


def _traced(job: Job, folder: Path) -> _RerankerGraphs:
    from kbproc.engine.models import through_torch

    words, model = through_torch.load_classifier(Path(job.source))
    if (labels := model.config.num_labels) != 1:
        raise KbprocError("model.unavailable", f"{job.name} has {labels} labels instead of one.")
    through_torch.save_tokenizer(words, folder)
    exporter = through_torch.trace_classifier(words, model, OUTPUT, folder / FULL / MODEL)
    exporting.quantize(folder / FULL / MODEL, folder / MODEL)
    most = _max_tokens(words, model)
    logits = through_torch.logits(words, model, PARITY_QUERY, PARITY_TEXTS, most)
    return _RerankerGraphs(exporter=exporter, max_tokens=most, logits=logits)


def _max_tokens(words: Any, model: Any) -> int:
    """Returns how many tokens the model reads; some models use no position below the padding's."""
    positions = getattr(model.config, "max_position_embeddings", None) or 512
    if model.config.model_type in {"roberta", "xlm-roberta", "camembert"}:
        positions -= model.config.pad_token_id + 1
    return int(min(positions, words.model_max_length, _MOST_TOKENS))


def _logits_of(meta: RerankerMeta, folder: Path, full: Path) -> list[float]:
    """Returns the fp32 graph's logits of the PARITY_TEXTS."""
    shutil.copy(folder / TOKENIZER, full / TOKENIZER)
    (full / META).write_bytes(msgspec.json.encode(meta))
    return _logits(OnnxCrossEncoder(full, is_kept=False))


def _logits(exported: OnnxCrossEncoder) -> list[float]:
    query = exported.query(PARITY_QUERY)
    return [exported.logit(query, text) for text in PARITY_TEXTS]


def _agrees(meta: RerankerMeta, folder: Path, reference: list[float]) -> bool:
    """Returns whether the exported model gives the reference's logits and notes how nearly."""
    (folder / META).write_bytes(msgspec.json.encode(meta))
    pairs = list(zip(_logits(OnnxCrossEncoder(folder)), reference, strict=True))
    score = max(abs(logistic(a) - logistic(b)) for a, b in pairs)
    logit = max(abs(a - b) for a, b in pairs)
    print(f"{meta.precision}: scores differ by {score:.5f}, logits by {logit:.5f}", file=sys.stderr)
    meta = msgspec.structs.replace(meta, parity=(round(score, 6), round(logit, 6)))
    (folder / META).write_bytes(msgspec.json.encode(meta))
    most_score, most_logit = _MOST_DIFFERENCE[meta.precision.partition("-")[0]]
    return score <= most_score and logit <= most_logit


if __name__ == "__main__":
    exporting.work(_export)
