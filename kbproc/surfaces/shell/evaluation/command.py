"""`kbproc eval DIR`.

Owns: its arguments, the store that is thrown away, and what is asked in which order.
Refuses to know: measures and forms of collections.
"""

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
from kbproc.calls.registry import Registry
from kbproc.search.evaluation import told
from kbproc.search.evaluation.asking import Asked
from kbproc.search.evaluation.collection import Collection, read
from kbproc.sharing.alone import InProcess
from kbproc.shell.arguments import Options, Parsed, usage_error
from kbproc.store.folder import write_settings

_MODES = ("hybrid", "fts", "vector")
_KINDS = ("none", "hash")  # other names are those of model.use


def evaluate(parsed: Parsed, options: Options, registry: Registry) -> dict[str, Any]:
    """The figures. Raises input.invalid_params, and what methods raise."""
    if len(parsed.positionals) != 1:
        raise usage_error("eval needs a DIR.", "eval", hint="kbproc eval --help tells its forms.")
    folder = absolute(parsed.positionals[0], field="DIR")
    collection = _of(read(folder), parsed.last("--questions"))
    compare = parsed.last("--compare")
    setting = {} if compare is None else _setting(compare)
    questions = collection.questions
    model = parsed.last("--model")
    modes = _MODES if model != "none" else ("fts",)
    with _asked(collection, options, registry, model) as store:
        count = store.documents
        found = {mode: store.answers(questions, mode, {"mode": mode}) for mode in modes}
        other = store.answers(questions, compare, setting) if compare is not None else None
    return {
        "collection": collection.name,
        "documents": count,
        "questions": len(questions),
        "modes": {mode: told.quality(questions, answers) for mode, answers in found.items()},
        "compared": None
        if other is None
        else {"setting": compare, **told.compared(questions, found[modes[0]], other)},
        "best_scores": {"mode": modes[0], **told.best_scores(questions, found[modes[0]])},
    }


@contextmanager
def _asked(
    collection: Collection, options: Options, registry: Registry, model: str | None
) -> Iterator[Asked]:
    """The store lies in a folder for temporary files and goes at the end."""
    with tempfile.TemporaryDirectory(prefix="kbproc-eval-", ignore_cleanup_errors=True) as folder:
        store = Path(folder) / "store"
        if model in _KINDS:
            store.mkdir(mode=0o700)
            write_settings(store / "store.toml", {"kind": model, "name": model})
        own = msgspec.structs.replace(
            options.config, store=store, kb="default", actor="eval", agent_named_by=None
        )
        backend = InProcess(config=own, registry=registry, host=Host())
        progress = options.output.progress

        def ask(name: str, params: dict[str, Any]) -> dict[str, Any]:
            answer = backend.ask(name, params, lambda event: None)
            if "error" in answer:
                told = answer["error"]["data"]
                raise KbprocError(told["type"], told["message"], hint=told.get("hint"))
            result: dict[str, Any] = answer["result"]
            return result

        def drain() -> None:
            backend.drain(0, lambda done, total: progress("embed", done, total), None)

        try:
            if model is not None and model not in _KINDS:
                ask("model.use", {"name": model})
            yield Asked(collection, ask, drain, progress)
        finally:
            backend.close()


def _of(collection: Collection, most: str | None) -> Collection:
    """Only the first `most` questions; documents of which part are asked stay."""
    if most is None:
        return collection
    if not most.isdecimal() or not int(most):
        raise usage_error(f"--questions is {most!r}; it is a number of at least 1.", "--questions")
    questions = collection.questions[: int(most)]
    parts = {question.part for question in questions}
    kept = [one for one in collection.documents if one.part in parts]
    return msgspec.structs.replace(collection, questions=questions, documents=kept)


def _setting(text: str) -> dict[str, Any]:
    """`fusion=rrf,ef_search=16` as params of search."""
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
