"""Runs `kbproc eval DIR` in a temporary store."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from kbproc.base.errors import KbprocError
from kbproc.base.host import Host
from kbproc.base.paths import absolute
from kbproc.engine.store.folder import write_settings
from kbproc.knowledge.search.evaluation import told
from kbproc.knowledge.search.evaluation.asking import EvaluationStore
from kbproc.knowledge.search.evaluation.collection import Collection, read
from kbproc.methods.calls.registry import Registry
from kbproc.surfaces.sharing.command import Command
from kbproc.surfaces.shell.arguments import Options, ParsedArguments, usage_error

_MODES = ("hybrid", "fts", "vector")
_KINDS = ("none", "hash")  # any other name is a model for model.use


def evaluate(parsed: ParsedArguments, options: Options, registry: Registry) -> dict[str, Any]:
    """Returns the figures. Raises input.invalid_params, and the errors of methods."""
    if len(parsed.positionals) != 1:
        raise usage_error("eval needs a DIR.", "eval", hint="kbproc eval --help tells its forms.")
    folder = absolute(parsed.positionals[0], field="DIR")
    collection = _limited(read(folder), parsed.last("--questions"))
    compare = parsed.last("--compare")
    setting = {} if compare is None else _setting(compare)
    questions = collection.questions
    model = parsed.last("--model")
    modes = _MODES if model != "none" else ("fts",)
    with _temporary_store(collection, options, registry, model) as store:
        count = store.documents
        answers_of = {mode: store.answers(questions, mode, {"mode": mode}) for mode in modes}
        other = store.answers(questions, compare, setting) if compare is not None else None
    return {
        "collection": collection.name,
        "documents": count,
        "questions": len(questions),
        "modes": {mode: told.quality(questions, answers) for mode, answers in answers_of.items()},
        "compared": None
        if other is None
        else {"setting": compare, **told.compared(questions, answers_of[modes[0]], other)},
        "best_scores": {"mode": modes[0], **told.best_scores(questions, answers_of[modes[0]])},
    }


@contextmanager
def _temporary_store(
    collection: Collection, options: Options, registry: Registry, model: str | None
) -> Iterator[EvaluationStore]:
    """Yields a store in a temporary folder, which is removed at the end."""
    with tempfile.TemporaryDirectory(prefix="kbproc-eval-", ignore_cleanup_errors=True) as folder:
        store = Path(folder) / "store"
        if model in _KINDS:
            store.mkdir(mode=0o700)
            write_settings(store / "store.toml", {"kind": model, "name": model})
        own = msgspec.structs.replace(
            options.config, store=store, kb="default", actor="eval", agent_named_by=None
        )
        backend = Command(config=own, registry=registry, host=Host())
        progress = options.output.progress

        def ask(name: str, params: dict[str, Any]) -> dict[str, Any]:
            answer = backend.ask(name, params, lambda event: None)
            if "error" in answer:
                error = answer["error"]["data"]
                raise KbprocError(error["type"], error["message"], hint=error.get("hint"))
            result: dict[str, Any] = answer["result"]
            return result

        def drain() -> None:
            backend.drain(0, progress, None)

        try:
            if model is not None and model not in _KINDS:
                ask("model.use", {"name": model})
            yield EvaluationStore(collection, ask, drain, progress)
        finally:
            backend.close()


def _limited(collection: Collection, most: str | None) -> Collection:
    """Returns the collection with the first `most` questions, and the documents of their parts."""
    if most is None:
        return collection
    if not most.isdecimal() or not int(most):
        raise usage_error(f"--questions is {most!r}; it is a number of at least 1.", "--questions")
    questions = collection.questions[: int(most)]
    parts = {question.part for question in questions}
    documents = [document for document in collection.documents if document.part in parts]
    return msgspec.structs.replace(collection, questions=questions, documents=documents)


def _setting(text: str) -> dict[str, Any]:
    """Returns params of search from text such as `fusion=rrf,ef_search=16`."""
    setting = {}
    for part in text.split(","):
        name, sign, value = part.partition("=")
        if not (name and sign):
            raise usage_error(
                f"--compare is {text!r}; it is made of NAME=VALUE.",
                "--compare",
                hint="Such as --compare fusion=rrf, or mode=fts,distinct=true.",
            )
        try:
            setting[name] = msgspec.json.decode(value.encode())
        except msgspec.DecodeError:
            setting[name] = value
    return setting
