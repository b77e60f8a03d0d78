"""Random courses of events: documents, their links and failures; conversations."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from kbproc.engine.events.document import (
    ChunkDeleted,
    ChunkText,
    DocChanged,
    DocDeleted,
    DocWritten,
    FileCleared,
    FileFailed,
)
from kbproc.engine.events.entry import EntryFacts, EntryReviewed, EntryRevived, EntrySuperseded
from kbproc.engine.events.event import Event
from kbproc.engine.events.origin import ORIGINS
from kbproc.engine.events.session import (
    AnswerEnded,
    AnswerRestarted,
    AnswerSaid,
    QuestionAsked,
    QuestionRestored,
    QuestionWithdrawn,
    SessionCreated,
    SessionDeleted,
    SessionPurged,
    SessionRestored,
)
from kbproc.engine.log.record import START, Record, seal_all
from tests.kit.records import draft_of

steps = st.lists(
    st.tuples(st.sampled_from("wwechrdfgsuvvo"), st.integers(1, 4), st.integers(1, 4)), max_size=40
)

talks = st.lists(st.tuples(st.sampled_from("nqsserwbdcp"), st.integers(0, 9)), max_size=40)


def records(sequence: Sequence[tuple[str, int, int]]) -> list[Record]:
    """A record for each step of `sequence`, over four documents and two files."""
    revisions: dict[int, int] = {}
    last_chunks: dict[int, int] = {}
    chunk = 1
    drafts = []
    for number, (what, id, other) in enumerate(sequence):
        event: Event
        if what == "f":
            event = FileFailed(kb="k", path=f"/{id}", error="e", message=str(number))
        elif what == "g":
            event = FileCleared(kb="k", path=f"/{id}")
        elif what in "we" or id not in revisions:
            revisions[id] = revisions.get(id, 0) + 1
            event = DocWritten(
                id=id,
                kb="k",
                revision=revisions[id],
                title=f"{number}",
                doc_type="knowledge",
                source_sha256="ab",
                size_bytes=1,
                first_chunk=chunk,
                chunks=[ChunkText(text=f"{number}-{n}") for n in range(2)],
                parser=1,
                origin="agent",
                entry=EntryFacts(confidence=80, source=""),
            )
            chunk += 2
            last_chunks[id] = chunk - 1
        elif what in "cro":
            revisions[id] += 1
            event = DocChanged(
                id=id,
                revision=revisions[id],
                title=f"c{number}",
                tags=[f"t{other}"],
                metadata={"n": other},
                origin=ORIGINS[other] if what == "o" else None,
            )
        elif what == "v":
            event = EntryReviewed(id=id, verified_by=f"{other}", verified_at=f"{number}")
        elif what == "d":
            event = DocDeleted(id=id)
        elif what == "h":
            revisions[id] += 1
            event = ChunkDeleted(document_id=id, revision=revisions[id], ids=[last_chunks[id]])
        elif what == "s":
            event = EntrySuperseded(id=id, by=other)
        else:
            event = EntryRevived(ids=[id], was=other)
        drafts.append(draft_of(number, event))
    return seal_all(drafts, START)


def conversations(sequence: Sequence[tuple[str, int]]) -> list[Record]:
    """A record for each step of `sequence`, after a first one that begins a session."""
    drafts = [draft_of(0, *question_events(1, 1))]
    sessions, messages = 1, 1
    for number, (what, which) in enumerate(sequence, 1):
        session = of = {"session": 1 + which % sessions}
        message = {**of, "message": 1 + which % messages}
        event: Event
        if what in "nq":
            sessions, messages = sessions + (what == "n"), messages + 1
            new = question_events(sessions, messages)
            drafts.append(draft_of(number, *new if what == "n" else new[1:]))
            continue
        match what:
            case "s":
                event = AnswerSaid(**message, delta=f"{number} ")
            case "e":
                event = AnswerEnded(**message, status="finished", hint=f"{number}")
            case "r":
                event = AnswerRestarted(**message)
            case "w":
                event = QuestionWithdrawn(**message)
            case "b":
                event = QuestionRestored(**message)
            case "d":
                event = SessionDeleted(**session)
            case "c":
                event = SessionRestored(**session)
            case _:
                event = SessionPurged(**session)
        drafts.append(draft_of(number, event))
    return seal_all(drafts, START)


def question_events(session: int, message: int) -> list[Event]:
    begun = SessionCreated(session=session, key=f"k{session}", title="t", kbs=["a", "b"])
    return [begun, QuestionAsked(session=session, message=message, question="?", answerer="a")]
