"""Legs that move many documents: ingest, embedding, rebuilding the views.

These legs run inside this process, without pipes, beside bare programs that do the same work.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from bench import corpus, real_text
from bench.floor import Rows, Words
from bench.measure import Result, take_turns
from bench.wire_legs import Setting, models
from kbproc.base.host import Host
from kbproc.engine.models.interface import DEFAULT_MODEL
from kbproc.engine.models.weights import installed_folder
from kbproc.engine.sources.parse.worker import ParserJob
from kbproc.knowledge.app.library import Library
from kbproc.methods.all import registry
from kbproc.methods.calls.call import Call, Peer
from kbproc.methods.calls.reply import Answer
from kbproc.methods.calls.run import run

_WORKERS = 2
_METHODS = registry()


def call(library: Library, name: str, **params: object) -> Any:
    """Returns the answer to one request, without a wire."""
    return answered(library, name, **params).data


def answered(library: Library, name: str, **params: object) -> Answer:
    host = Host()
    peer = Peer(
        actor="bench",
        scopes=frozenset(_METHODS.scopes),
        cwd=Path("/"),
        root=None,
        kb="default",
    )
    request = Call(
        registry=_METHODS,
        host=host,
        peer=peer,
        open_library=lambda: library,
        emit=lambda name, fields: None,
        now=host.now(),
    )
    answer = run(request, name, json.dumps(params).encode())
    assert isinstance(answer, Answer)
    return answer


# --------------------------------------------------------------------------- ingest


def ingest(setting: Setting) -> Iterator[Result]:
    """Ingests files to durable, searchable chunks without vectors, against the parts alone."""
    long, short = setting.files, setting.folder / "short files"
    if long is None:
        long = setting.folder / "files"
        corpus.markdown_files(long, 5 if setting.quick else 400)
    yield _ingested(setting, long, "ingest without embedding / its parts")
    corpus.short_files(short, 20 if setting.quick else 4000)
    yield _ingested(setting, short, "ingest of short files / its parts")


def _ingested(setting: Setting, files: Path, name: str) -> Result:
    paths = sorted(path for path in files.rglob("*") if path.suffix in {".md", ".txt"})
    folder, model = setting.folder / f"ingested {files.name}", _model(setting)
    chunks: dict[str, int] = {}

    def product(number: int) -> None:
        library = corpus.open_store(folder / f"store-{number}", model)
        _start_parsers(library, paths[0])
        started = time.perf_counter()
        done = call(library, "doc.ingest", paths=[str(files)], glob="*.md")
        seconds["product"].append(time.perf_counter() - started)
        chunks["product"] = done.chunks
        library.close()

    def floor(number: int) -> None:
        with _bare_workers(model) as workers:
            ready: set[int] = set()
            while len(ready) < _WORKERS:  # one worker may read all files before another starts
                ready |= set(workers.map(_bare_ready, paths[:1] * _WORKERS))
            started = time.perf_counter()
            chunks["floor"] = _bare_ingest(workers, paths, folder / f"bare-{number}")
            seconds["floor"].append(time.perf_counter() - started)

    seconds: dict[str, list[float]] = {"product": [], "floor": []}
    take_turns([product, floor], 1 if setting.quick else 5)
    # No folder is deleted here, because a deletion slows the making of files for some minutes.
    if chunks["product"] != chunks["floor"]:
        raise RuntimeError(f"not the same work: {chunks}")
    times = [statistics.median(seconds[who]) for who in ("product", "floor")]
    note = f"{len(paths)} files, {chunks['product']} chunks, {chunks['product'] / times[0]:.0f}/s"
    return Result(name, *times, aim=2, note=note)


def _model(setting: Setting) -> dict[str, object]:
    """Returns the real model, which counts tokens; this leg embeds nothing."""
    return corpus.ONNX if setting.has_model else corpus.NONE


def _start_parsers(library: Library, path: Path) -> None:
    """Starts processes and tokenizers before the clock, as the floor does."""

    def read(_: int) -> None:
        job = ParserJob(data=path.read_bytes(), type="markdown", name=path.name, title=None)
        library.parsers.get().parse([job])

    with ThreadPoolExecutor(_WORKERS) as threads:
        list(threads.map(read, range(2 * _WORKERS)))


def _bare_workers(model: dict[str, object]) -> ProcessPoolExecutor:
    tokenizer = installed_folder(DEFAULT_MODEL) / "tokenizer.json" if model is corpus.ONNX else None
    return ProcessPoolExecutor(
        _WORKERS, get_context("spawn"), initializer=_bare_worker, initargs=(tokenizer,)
    )


def _bare_ingest(workers: ProcessPoolExecutor, files: list[Path], folder: Path) -> int:
    """Returns the count of chunks: two processes read and cut, this one indexes and stores rows.

    There is one commit and sync at the end. The rows are lines of a file, without a database.
    """
    folder.mkdir(parents=True)
    words, rows = Words(folder / "words"), Rows(folder / "rows.ndjson")
    stored: list[tuple[str, str, str | None]] = []
    for number, chunks in enumerate(workers.map(_bare_read, files, chunksize=4)):
        for text, section in chunks:
            words.add(len(stored), text)
            stored.append((str(files[number]), text, section))
    words.commit()
    rows.add(stored)
    words.close()
    rows.close()
    return len(stored)


_count: Callable[[str], int]


def _bare_worker(tokenizer: Path | None) -> None:
    global _count  # noqa: PLW0603  one a process
    from kbproc.engine.sources.chunk import count_words, token_counter

    _count = count_words if tokenizer is None else token_counter(str(tokenizer))


def _bare_ready(path: Path) -> int:
    _bare_read(path)
    return os.getpid()


def _bare_read(path: Path) -> list[tuple[str, Any]]:
    from kbproc.engine.sources.chunk import chunk
    from kbproc.engine.sources.parse.formats import parse

    parsed = parse(path.read_bytes(), "markdown", path.name)
    chunks = chunk(parsed.blocks, title=parsed.title, count=_count, max_tokens=256, overlap=38)
    return [(c.text, c.section) for c in chunks]


# ------------------------------------------------------------------------ embedding


def embed(setting: Setting) -> Iterator[Result]:
    """Measures chunks a second, with two workers and some 256 tokens each."""
    if not setting.has_model:
        return
    count = 8 if setting.quick else 160
    rounds = 1 if setting.quick else 4
    store_folder = setting.folder / "embed"
    strings = list(real_text.texts(count, seed=5, words=280))
    rates: dict[str, list[float]] = {"product": [], "bare": [], "reference": []}

    def timed(who: str, work: Callable[[], None]) -> None:
        started = time.perf_counter()
        work()
        rates[who].append(count / (time.perf_counter() - started))

    def product(number: int) -> None:
        folder = store_folder / str(number)
        library = corpus.open_store(folder, corpus.ONNX)
        library.embedding.query_vector("loads the model")
        library.store.commit(lambda lane: corpus.append_texts(lane, strings))
        timed("product", lambda: library.embedding.drain(lambda stage, done, total: None))
        assert library.embedding.pending_count == 0
        library.close()

    bare, reference = _bare_embedding(strings), None if setting.quick else _reference(strings)
    actions: list[Callable[[int], object]] = [product, lambda _: timed("bare", bare)]
    if reference is not None:
        actions.append(lambda _: timed("reference", reference))
    take_turns(actions, rounds)
    shutil.rmtree(store_folder)
    mine, alone = (statistics.median(rates[who]) for who in ("product", "bare"))
    yield Result("embedding / onnxruntime alone", mine, alone, aim=0.9, unit="/s", note="chunks")
    if rates["reference"]:
        theirs = statistics.median(rates["reference"])
        yield Result(
            "embedding / sentence-transformers", mine, theirs, aim=2, unit="/s", note="chunks"
        )


def _be_nice() -> None:
    """Lowers the thread's priority to that of the product's threads, for equal load."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)


def _bare_embedding(strings: list[str]) -> Callable[[], None]:
    """Returns an action that only calls `session.run`: two threads, a text each, tokens ready."""
    import numpy as np
    import onnxruntime as ort
    from tokenizers import Tokenizer

    folder = installed_folder(DEFAULT_MODEL)
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = ort.InferenceSession(str(folder / "model.onnx"), options)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(256)
    names = [entry.name for entry in session.get_inputs()]
    feeds = []
    for encoded in tokenizer.encode_batch(strings):
        columns = {
            "input_ids": encoded.ids,
            "attention_mask": encoded.attention_mask,
            "token_type_ids": encoded.type_ids,
        }
        feeds.append({name: np.array([columns[name]], np.int64) for name in names})

    def run() -> None:
        with ThreadPoolExecutor(_WORKERS, initializer=_be_nice) as threads:
            list(threads.map(lambda feed: session.run(None, feed), feeds))

    return run


def _reference(strings: list[str]) -> Callable[[], None] | None:
    """Returns sentence-transformers with its defaults, in batches of 32; None without it."""
    from kbproc.base.errors import KbprocError
    from kbproc.engine.models.catalogue import load
    from kbproc.engine.models.interface import ModelSpec

    try:
        import torch

        embedder: Any = load(ModelSpec(kind="sentence-transformers"), models())
    except (ImportError, KbprocError) as error:
        print(f"sentence-transformers is left out: {error}")
        return None
    torch.set_num_threads(_WORKERS)

    def run() -> None:
        embedder._model.encode(strings, batch_size=32, show_progress_bar=False)

    return run


# -------------------------------------------------------------------------- rebuild


def rebuild(setting: Setting) -> Iterator[Result]:
    """Rebuilds the views from log and pack: deletes views/ and opens the store again."""
    for chunks in setting.sizes:
        folder = setting.store(chunks)
        shutil.rmtree(folder / "views")
        started = time.perf_counter()
        library = corpus.open_store(folder, corpus.HASH)
        opened = time.perf_counter() - started
        store = library.store
        assert store.vectors and store.chunks == store.vectors.snapshot().live == chunks
        library.tidy()
        folded = time.perf_counter() - started
        library.close()
        note = f"{folded:.1f} s with the graph, which is built while searches go on"
        aim = 40 if chunks == 100_000 else None
        yield Result(f"rebuild of views, {chunks:,} chunks", opened, aim=aim, note=note)
