"""Events of a log of any age keep their meaning."""

from __future__ import annotations

import string
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbproc.base.errors import KbprocError
from kbproc.engine.events import codec
from kbproc.engine.events.agent import AgentDeleted
from kbproc.engine.events.document import (
    ChunkDeleted,
    ChunkText,
    DocChanged,
    DocDeleted,
    DocWritten,
    FileCleared,
    FileFailed,
)
from kbproc.engine.events.entry import EntryRevived
from kbproc.engine.events.event import Event, Subject
from kbproc.engine.events.kb import KbCreated, KbDeleted, KbUpdated
from kbproc.engine.events.upkeep import ContentForgotten, DocPurged, Erased, PurgeEnded
from kbproc.engine.events.watch import FolderUnwatched, FolderWatched

# Logs on users' disks hold these types. One may be added; none may ever change or go.
TAGS = {
    "chunk.deleted",
    "doc.changed",
    "doc.deleted",
    "doc.written",
    "file.cleared",
    "file.failed",
    "kb.created",
    "kb.deleted",
    "kb.updated",
    "doc.purged",
    "content.forgotten",
    "purge.ended",
    "text.erased",
    "log.repaired",
    "model.used",
    "plan.approved",
    "entry.superseded",
    "entry.revived",
    "entry.reviewed",
    "agent.written",
    "agent.deleted",
    "folder.watched",
    "folder.unwatched",
}

# The same holds for their members: a name that was written once stays readable for ever.
MEMBERS = {
    "kb.created": {"slug", "name", "description"},
    "kb.updated": {"slug", "name", "description"},
    "kb.deleted": {"slug"},
    "doc.written": {
        "id",
        "kb",
        "revision",
        "title",
        "doc_type",
        "source_sha256",
        "size_bytes",
        "first_chunk",
        "chunks",
        "parser",
        "path",
        "url",
        "source_id",
        "tags",
        "metadata",
        "pages",
        "origin",
        "created_at",
        "created_by",
        "entry",
    },
    "doc.changed": {"id", "revision", "title", "tags", "metadata", "origin"},
    "doc.deleted": {"id"},
    "chunk.deleted": {"document_id", "revision", "ids"},
    "file.failed": {"kb", "path", "error", "message", "sha256"},
    "file.cleared": {"kb", "path"},
    "doc.purged": {"ids"},
    "content.forgotten": {"id", "kept"},
    "purge.ended": {"purge"},
    "text.erased": {"was", "purge", "document_id", "next_document", "next_chunk"},
    "model.used": {"kind", "name"},
    "plan.approved": {"by"},
    "entry.superseded": {"id", "by", "was"},
    "entry.revived": {"ids", "was"},
    "entry.reviewed": {"id", "verified_by", "verified_at", "review_after"},
    "agent.written": {
        "slug",
        "revision",
        "description",
        "kbs",
        "folder",
        "scopes",
        "quotas",
        "instructions",
    },
    "agent.deleted": {"slug"},
    "folder.watched": {
        "machine",
        "path",
        "kb",
        "root",
        "glob",
        "exclude",
        "tags",
        "prune",
        "all_files",
        "max_file_bytes",
        "poll",
    },
    "folder.unwatched": {"machine", "path", "kb"},
    "log.repaired": {"lost", "aside", "next_document", "next_chunk"},
}

# Events as the first version wrote them, byte for byte.
OLD = (
    b'[{"type":"kb.created","slug":"default","name":"Default"},'
    b'{"type":"doc.written","id":1,"kb":"default","revision":1,"title":"A","doc_type":"text",'
    b'"source_sha256":"ab","size_bytes":3,"first_chunk":1,"chunks":[{"text":"abc"},'
    b'{"text":"def","page":2,"section":"S","overlap":1}],"parser":1,"origin":"user"},'
    b'{"type":"doc.deleted","id":1},{"type":"file.cleared","kb":"default","path":"/a"}]'
)


def kinds() -> dict[str, Any]:
    return dict(codec.KINDS)


def test_tags_never_change() -> None:
    assert set(kinds()) >= TAGS


def test_members_never_go() -> None:
    absent = {tag: MEMBERS[tag] - set(kinds()[tag].__struct_fields__) for tag in TAGS}
    assert {tag: members for tag, members in absent.items() if members} == {}


def test_a_member_that_was_added_later_has_a_default() -> None:
    fields = [(tag, field) for tag in TAGS for field in msgspec.structs.fields(kinds()[tag])]
    added = [(tag, field) for tag, field in fields if field.name not in MEMBERS[tag]]
    assert [(tag, field.name) for tag, field in added if field.required] == []


def test_tags_are_noun_and_verb() -> None:
    letters = set(string.ascii_lowercase + "._")
    assert [tag for tag in kinds() if tag.count(".") != 1 or not set(tag) <= letters] == []


def test_the_first_versions_bytes_are_still_read_and_written() -> None:
    events = codec.decode(OLD)
    assert [event.tag() for event in events] == [
        "kb.created",
        "doc.written",
        "doc.deleted",
        "file.cleared",
    ]
    assert bytes(codec.encode(events)) == OLD


text = st.text(max_size=20)
scalars = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | text
chunk_texts = st.builds(
    ChunkText,
    text=text,
    page=st.none() | st.integers(1, 99),
    section=st.none() | text,
    overlap=st.integers(0, 9),
)


@given(
    st.lists(
        st.one_of(
            st.builds(KbCreated, slug=text, name=text, description=text),
            st.builds(KbUpdated, slug=text, name=text, description=text),
            st.builds(KbDeleted, slug=text),
            st.builds(
                DocWritten,
                id=st.integers(1),
                kb=text,
                revision=st.integers(1),
                title=text,
                doc_type=text,
                source_sha256=text,
                size_bytes=st.integers(0),
                first_chunk=st.integers(1),
                chunks=st.lists(chunk_texts, max_size=3),
                parser=st.integers(1),
                path=st.none() | text,
                url=st.none() | text,
                source_id=st.none() | text,
                tags=st.lists(text, max_size=3),
                metadata=st.dictionaries(text, scalars, max_size=3),
                pages=st.none() | st.integers(1),
            ),
            st.builds(
                DocChanged,
                id=st.integers(1),
                revision=st.integers(1),
                title=text,
                tags=st.lists(text, max_size=3),
                metadata=st.dictionaries(text, scalars, max_size=3),
            ),
            st.builds(DocDeleted, id=st.integers(1)),
            st.builds(
                ChunkDeleted,
                document_id=st.integers(1),
                revision=st.integers(1),
                ids=st.lists(st.integers(1), max_size=3),
            ),
            st.builds(
                FileFailed, kb=text, path=text, error=text, message=text, sha256=st.none() | text
            ),
            st.builds(FileCleared, kb=text, path=text),
        ),
        max_size=4,
    )
)
def test_round_trip(events: list[Event]) -> None:
    raw = codec.encode(events)
    assert b"\n" not in bytes(raw)
    assert codec.decode(raw) == events


def test_every_event_has_a_summary() -> None:
    blanks: dict[type, Any] = {int: 1, str: "x"}
    summaries = {}
    for tag, kind in kinds().items():
        fields = {
            field.name: blanks.get(field.type, [] if field.name != "metadata" else {})
            for field in msgspec.structs.fields(kind)
            if field.required
        }
        summaries[tag] = kind(**fields).summary()
    assert {tag: text for tag, text in summaries.items() if not text[:1].islower()} == {}


ABOUT = [
    (DocDeleted(id=3), Subject(document=3), [3]),
    (ChunkDeleted(document_id=3, revision=2, ids=[7]), Subject(document=3, revision=2), [3]),
    (DocPurged(ids=[3]), Subject(listed=[3]), [3]),
    (EntryRevived(ids=[3, 4], was=5), Subject(listed=[3, 4]), [3, 4]),
    (Erased(was="doc.written", purge=9), Subject(), []),
    (KbDeleted(slug="ab"), Subject(kb="ab"), []),
    (AgentDeleted(slug="ann"), Subject(agent="ann"), []),
    (FileCleared(kb="ab", path="/x"), Subject(within="ab"), []),
    (ContentForgotten(id=3, kept=2), Subject(document=3), [3]),
    (PurgeEnded(purge=9), Subject(), []),
    (FolderWatched(machine="m", path="/x", kb="ab"), Subject(within="ab"), []),
    (FolderUnwatched(machine="m", path="/x", kb="ab"), Subject(within="ab"), []),
]


def test_an_event_says_what_it_is_about() -> None:
    wrong = []
    for event, about, documents in ABOUT:
        subject = event.concerns()
        if (subject, list(subject.documents)) != (about, documents):
            wrong.append((event, subject))
    assert wrong == []


def test_a_tag_that_no_version_knows_is_refused() -> None:
    with pytest.raises(KbprocError, match="event that this kbproc can't read"):
        codec.decode(b'[{"type":"doc.exploded","id":1}]')


def test_a_member_of_a_later_version_is_passed_over() -> None:
    assert codec.decode(b'[{"type":"doc.deleted","id":1,"why":"old"}]') == [DocDeleted(id=1)]
