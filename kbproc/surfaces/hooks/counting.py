"""Counts what a hook has added to a prompt, and what the agent did with that, where a person wants
it: `kbproc hook install CLIENT --count`.

At the end of a session its log says which of the quoted texts the agent has cited or opened. The
log is read in the hook's process, and nothing of it is kept but ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kbproc.base.budget import BYTES_PER_TOKEN, byte_size
from kbproc.base.errors import KbprocError
from kbproc.base.settings.config import Config
from kbproc.engine.store import hook_counts
from kbproc.engine.store.folder import require_store
from kbproc.engine.store.hook_counts import Answers, Injection, InjectionKind, Use
from kbproc.surfaces.hooks.asking import HookQuestion
from kbproc.surfaces.hooks.uses import QuotedDocument, ToolAnswer, answers_in, uses_in
from kbproc.surfaces.hooks.worth import HookWorth, most_quoted, worth_of

_MOST_DOCUMENTS = 200  # each session counts the uses of the latest ones alone


def count_injection(
    store: Path, *, now: str, session: str | None, kind: InjectionKind, text: str, ids: list[int]
) -> None:
    """Counts an answer of a hook. Raises OSError."""
    tokens = -(-byte_size(text) // BYTES_PER_TOKEN)
    name = hook_counts.name_of(session)
    ids = list(dict.fromkeys(ids))
    line = Injection(ts=now, session=name, kind=kind, tokens=tokens, ids=ids)
    hook_counts.add(store, line)


def quoted_ids(store: Path, session: str) -> list[int]:
    """Returns the documents that hooks have quoted in a session, the latest first.

    Raises OSError.
    """
    name = hook_counts.name_of(session)
    lines = [
        line
        for line in hook_counts.lines_of(store)
        if isinstance(line, Injection) and line.session == name
    ]
    return list(dict.fromkeys(id for line in reversed(lines) for id in line.ids))[:_MOST_DOCUMENTS]


def count_use(
    store: Path,
    *,
    now: str,
    session: str,
    transcript: Path,
    ids: Sequence[int],
    ask: Callable[[], HookQuestion],
) -> None:
    """Counts what the agent has cited and opened of the documents that hooks quoted, and that its
    own searches found.

    `ask` is called if there are any. Raises OSError, input.unsupported_type for a log that is no
    conversation, store.locked.
    """
    from kbproc.engine.sources.parse.conversation import messages_in

    messages = messages_in(transcript.read_bytes(), transcript.name)
    tool_answers = answers_in(messages)
    first = {id: one.place for one in reversed(tool_answers) for id in one.ids}
    if not ids and not tool_answers:
        return
    found_ids = sorted(first, key=lambda id: first[id], reverse=True)[:_MOST_DOCUMENTS]
    every_id = dict.fromkeys([*ids, *found_ids])
    documents = list(_documents(ask(), every_id)) if every_id else []
    cited, opened = uses_in(messages, [one for one in documents if one.id in set(ids)])
    answers = _answers(messages, tool_answers, first, [one for one in documents if one.id in first])
    name = hook_counts.name_of(session)
    use = Use(ts=now, session=name, cited=cited, opened=opened, answers=answers)
    hook_counts.add(store, use)


def _answers(
    messages: Sequence[tuple[str, str, str]],
    tool_answers: Sequence[ToolAnswer],
    first: Mapping[int, int],
    documents: Sequence[QuotedDocument],
) -> Answers:
    """Returns the counts of tools' answers. `first`: where each document was found first."""
    cited, opened = uses_in(messages, documents, first)
    return Answers(
        calls=len(tool_answers),
        answers=sum(bool(one.ids) for one in tool_answers),
        tokens=-(-sum(one.size for one in tool_answers if one.ids) // BYTES_PER_TOKEN),
        ids=sorted(one.id for one in documents),
        cited=cited,
        opened=opened,
    )


def report(config: Config, folder: Path) -> HookWorth:
    """Returns what hooks said and what became of it. Raises resource.not_found, store.io."""
    lines = _lines(config.store)
    documents: dict[int, QuotedDocument] = {}
    if lines:
        asking = HookQuestion(config, folder)
        try:
            documents = {one.id: one for one in _documents(asking, most_quoted(lines))}
        finally:
            asking.close()
    return worth_of(lines, documents)


def _lines(store: Path) -> list[hook_counts.Line]:
    require_store(store)
    try:
        return hook_counts.lines_of(store)
    except OSError as error:
        raise _unreadable(store, error) from None


def forget(config: Config) -> bool:
    """Deletes the counts; returns whether there were any. Raises resource.not_found, store.io."""
    require_store(config.store)
    try:
        return hook_counts.delete(config.store)
    except OSError as error:
        raise _unreadable(config.store, error) from None


def _documents(asking: HookQuestion, ids: Iterable[int]) -> Iterator[QuotedDocument]:
    """Yields the documents that are still there."""
    fields = ["id", "title", "type", "source.path"]
    for response in asking.responses([("doc.get", {"id": id, "fields": fields}) for id in ids]):
        if "result" in response:
            data: dict[str, Any] = response["result"]["data"]
            noun = {"knowledge": "entry", "note": "note"}.get(data["type"], "document")
            path = (data.get("source") or {}).get("path")
            yield QuotedDocument(id=data["id"], noun=noun, title=data["title"], path=path)


def _unreadable(store: Path, error: OSError) -> KbprocError:
    return KbprocError(
        "store.io",
        f"The counts in {store / hook_counts.PLACE} can't be read or deleted: {error.strerror}.",
        detail={"path": str(store / hook_counts.PLACE)},
    )
