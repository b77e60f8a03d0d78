"""Imports agents, their notes, and sessions.

An agent that exists already stays as it is, and so does a note with another text. A session's key
is unique across stores; a session that exists already stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec

from kbproc.base import paths
from kbproc.base.errors import KbprocError
from kbproc.base.structs import batches, common_members
from kbproc.base.wording import plural
from kbproc.engine.events.agent import AgentWritten
from kbproc.engine.events.event import Event
from kbproc.engine.events.origin import AGENT, IMPORT, PERSON
from kbproc.engine.events.session import (
    AnswerEnded,
    AnswerReferred,
    AnswerSaid,
    Failure,
    QuestionAsked,
    SessionCreated,
)
from kbproc.engine.projections.catalog.queries import Queries
from kbproc.engine.projections.catalog.rows import AgentRow
from kbproc.engine.store.decision import Decision, DecisionState
from kbproc.engine.store.pipeline import LongWrite
from kbproc.engine.store.state import SeenStore
from kbproc.knowledge.agents import agent as agent_
from kbproc.knowledge.agents import folder as agent
from kbproc.knowledge.agents.notes import edit
from kbproc.knowledge.agents.notes.notebook import content_of, note_written
from kbproc.knowledge.documents.content import Intake
from kbproc.knowledge.documents.revision import Ids
from kbproc.knowledge.transfer import portable
from kbproc.knowledge.transfer.incoming.matching import (
    Contents,
    Emit,
    Import,
    Imported,
    NewIds,
    Omissions,
)

FIELD = "$.params.path"


class Agents(NamedTuple):
    """The events that create agents, and counts of others.

    `differing`: existing agents that differ from the file. `folders_left`: new agents that would
    have the file's folder if it were approved.
    """

    events: list[AgentWritten]
    differing: int
    folders_left: int


def with_folders(
    store: SeenStore, coming: Sequence[portable.AgentLine], *, root: Path | None, emit: Emit
) -> list[portable.AgentLine]:
    """Returns the agents with the folders that they may have in this store.

    An agent whose folder is refused gets the default one, with a warning. Call it outside the
    lane, because it accesses the folders.
    """
    with store.reading() as snapshot:
        rows = {row.slug: row for row in snapshot.queries.agents()}
    slugs_by_folder: dict[str, str] = {}
    placed = []
    for line in coming:
        existing = rows.get(line.slug)
        try:
            if line.folder is not None and not (existing and existing.folder == line.folder):
                folder = _placed(store, line, root, list(rows.values()), slugs_by_folder)
                line = msgspec.structs.replace(line, folder=folder)  # noqa: PLW2901
        except KbprocError as error:
            line = msgspec.structs.replace(line, folder=None)  # noqa: PLW2901
            if existing is None:
                warning = f"The agent {line.slug} gets the store's own folder: {error.message}"
                emit("warning", {"message": warning})
        if line.folder is not None:
            slugs_by_folder.setdefault(line.folder, line.slug)
        placed.append(line)
    return placed


def _placed(
    store: SeenStore,
    line: portable.AgentLine,
    root: Path | None,
    others: Sequence[AgentRow],
    slugs_by_folder: dict[str, str],
) -> str | None:
    """Returns the folder as agent.create would record it; raises what that raises."""
    path = paths.locate(str(line.folder), cwd=Path("/"), root=root, field=FIELD)
    folder = agent.folder_to_record(store, line.slug, path)
    agent.check_folder(store, path, line.slug, others)
    if folder in slugs_by_folder:
        raise KbprocError(
            "resource.already_exists",
            f"{folder} is the notes folder of {slugs_by_folder[folder]}, before it in the file.",
        )
    return folder


def missing_agents(here: DecisionState, contents: Contents, work: Import) -> Agents:
    """Returns the agents to create.

    The file's folders are used only with approval, because the file's author chose them.
    """
    folders = {one.folder: one.slug for one in here.queries.agents()}
    events: list[AgentWritten] = []
    differing = folders_left = 0
    for line in contents.agents:
        row = here.queries.agent(line.slug)
        event = _written(line, row, folders)
        if row is not None and row.deleted_at is None:
            differing += event != agent_.event_of(row)
            continue
        if event.folder is not None and not work.folders:
            event, folders_left = msgspec.structs.replace(event, folder=None), folders_left + 1
        events.append(event)
        folders[event.folder] = line.slug
    return Agents(events, differing, folders_left)


def _written(
    line: portable.AgentLine, row: AgentRow | None, folders: dict[str | None, str]
) -> AgentWritten:
    """Returns the event that creates the agent, without a folder that another agent has."""
    is_taken = line.folder is not None and folders.get(line.folder, line.slug) != line.slug
    return AgentWritten(
        **_of_line(line),
        revision=row.revision + 1 if row else 1,
        folder=None if is_taken else line.folder,
        quotas=line.quotas.limits(),
    )


_of_line = common_members(AgentWritten, portable.AgentLine, but=("folder", "quotas"))


# ----------------------------------------------------------------------- notes


def planned_notes(
    store: SeenStore, notes: Mapping[str, int], rows: Mapping[str, AgentRow]
) -> list[str]:
    """Returns plan lines for the folders to write into; folders outside the store come first.

    `notes`: agent → number of notes in the file. `rows`: the agents as they will be.
    """
    coming = [rows[slug] for slug in notes if slug in rows]
    coming.sort(key=lambda row: row.folder is None)  # because a reader may skip the last lines
    return [
        f"write into {paths.printable(agent.notes_folder(store, row))} the "
        f"{plural(notes[row.slug], 'note')} of {row.slug}, where "
        f"{'it is' if notes[row.slug] == 1 else 'they are'} not there yet"
        for row in coming
    ]


def write_notes(
    store: SeenStore,
    intake: Intake,
    work: Import,
    file: BinaryIO,
    ids: NewIds,
    result: Imported,
    write: LongWrite,
    emit: Emit,
    check: Callable[[], None],
) -> None:
    """Writes the notes and their files; a file with another text stays, with a warning."""
    with store.reading() as snapshot:
        rows = {row.slug: row for row in snapshot.queries.agents()}
    for _, line, _ in portable.read(file):
        if isinstance(line, portable.NoteLine):
            check()
            if row := rows.get(line.agent):
                _write_note(store, intake, work, row, line, ids, result, write, emit)


def _write_note(
    store: SeenStore,
    intake: Intake,
    work: Import,
    row: AgentRow,
    line: portable.NoteLine,
    ids: NewIds,
    result: Imported,
    write: LongWrite,
    emit: Emit,
) -> None:
    folder, data = agent.notes_folder(store, row), line.text.encode()
    exists = (folder / f"{line.slug}.md").exists()
    origin = (line.origin or AGENT) if work.keep_origins else IMPORT

    def decide(here: DecisionState) -> Decision:
        existing = here.queries.note(row.slug, line.slug)
        if existing is not None:
            return Decision(events=[], data=Omissions())
        # Recorded here, because a sync would take the file for a text of the agent itself.
        event = note_written(
            here, content, agent=row.slug, slug=line.slug, row=None, ids=Ids(here), origin=origin
        )
        omissions = Omissions()
        vouched = work.keep_origins and here.origin == PERSON
        anchors = omissions.anchors_here(line.anchors, ids, vouched=vouched)
        event = msgspec.structs.replace(event, anchors=anchors)
        effect = lambda: edit.write(folder, line.slug, data, None)  # noqa: E731
        return Decision(events=[event], data=omissions, effect=effect)

    try:
        agent.make_folder(store, folder)
        content = content_of(intake, line.slug, data)
        omissions: Omissions = write.item(decide)
        omissions.count(result)
        edit.write(folder, line.slug, data, None)
    except KbprocError as error:
        result.notes_kept += 1
        emit("warning", {"message": f"The note {line.agent}/{line.slug}: {error.message}"})
    else:
        result.notes_unchanged += exists
        result.notes_added += not exists


# -------------------------------------------------------------------- sessions


_BATCH_MESSAGES = 200
# Failures of endpoints and models, which say nothing about a store.
_FAILURES = frozenset({"llm.unavailable", "model.unavailable", "operation.timeout"})


def write_sessions(
    file: BinaryIO,
    ids: NewIds,
    result: Imported,
    write: LongWrite,
    check: Callable[[], None],
) -> None:
    """Writes the sessions in batches."""
    for batch in _session_batches(file):
        check()
        added = write.item(partial(_written_sessions, batch, ids))
        result.sessions_added += added
        result.sessions_unchanged += len(batch) - added


def _written_sessions(
    batch: list[portable.SessionLine], ids: NewIds, here: DecisionState
) -> Decision:
    new, message = _new_sessions(here.queries, batch), here.head.next_message
    events: list[Event] = []
    for session, line in enumerate(new, here.head.next_session):
        events.append(SessionCreated(session=session, **_of_session(line)))
        for exchange in line.messages:
            events += _exchange(exchange, ids, session, message)
            message += 1
    return Decision(events=events, data=len(new))


_of_session = common_members(SessionCreated, portable.SessionLine)
_of_question = common_members(QuestionAsked, portable.ExportedMessage, but=("references",))
_of_ending = common_members(AnswerEnded, portable.ExportedMessage, but=("failure",))


def _exchange(
    line: portable.ExportedMessage, ids: NewIds, session: int, message: int
) -> Iterator[Event]:
    """Yields the events of a question and its answer.

    A reference names the document by its id here, so that a purge of it is complete.
    """
    place: dict[str, Any] = {"session": session, "message": message}
    yield QuestionAsked(**place, **_of_question(line), references=line.detail)
    references = [
        msgspec.structs.replace(one, chunk_id=None, document_id=ids.here(one.document_id))
        for one in line.references
    ]
    yield AnswerReferred(**place, references=references)
    if line.text:
        yield AnswerSaid(**place, delta=line.text)
    failure = None if line.failure is None else _foreign_failure(line.failure)
    yield AnswerEnded(**place, **_of_ending(line), failure=failure)


def _foreign_failure(failure: Failure) -> Failure:
    """Returns the failure as another store's, because it does not concern this store."""
    return Failure(
        type=failure.type if failure.type in _FAILURES else "operation.failed",
        message=f"In the store that it comes from: {failure.message}",
        hint="Ask again: session.ask.",
        lasting=failure.lasting,
    )


def planned_sessions(queries: Queries, file: BinaryIO) -> list[str]:
    """Returns a plan line with the number of new sessions; no line without any."""
    new = [line for batch in _session_batches(file) for line in _new_sessions(queries, batch)]
    questions = sum(len(line.messages) for line in new)
    return (
        [f"add {plural(len(new), 'session')} with {plural(questions, 'question')}"] if new else []
    )


def _new_sessions(
    queries: Queries, batch: list[portable.SessionLine]
) -> list[portable.SessionLine]:
    keys = {row.key for row in queries.sessions()}
    return [line for line in batch if line.key not in keys]


def _session_batches(file: BinaryIO) -> Iterator[list[portable.SessionLine]]:
    lines = (line for _, line, _ in portable.read(file) if isinstance(line, portable.SessionLine))
    return batches(lines, lambda line: len(line.messages) + 1, most=_BATCH_MESSAGES)
