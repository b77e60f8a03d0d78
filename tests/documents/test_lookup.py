"""Refusals of documents: each names its cause and the way on."""

from __future__ import annotations

from typing import Any

import pytest

from kbproc.base.errors import KbprocError
from kbproc.engine.projections.catalog.rows import DocumentRow
from kbproc.knowledge.documents import kb, lookup
from tests.kit.talk import Session

NOW = "2026-01-01T00:00:00.000Z"


def document(type: str = "text", **more: Any) -> DocumentRow:
    members: dict[str, Any] = dict.fromkeys(DocumentRow.__struct_fields__)
    return DocumentRow(**{**members, "id": 7, "type": type, "revision": 3, "touched": 9, **more})


def refusal(work: Any, *args: Any, **more: Any) -> KbprocError:
    with pytest.raises(KbprocError) as caught:
        work(*args, **more)
    return caught.value


def test_an_unknown_knowledge_base_is_refused_with_the_nearest(session: Session) -> None:
    error = refusal(lookup.require_kbs, ["books", "letters"], ["books", "leters"])
    assert (error.type, error.field) == ("resource.not_found", "$.params.kb")
    assert (error.valid_values or [])[0] == "letters"
    assert "or use letters" in error.hint
    lookup.require_kbs(["books"], None)
    lookup.require_kbs(["books"], "books")
    assert refusal(lookup.require_kbs, [], "books").hint == "Create it: kb.create."
    with session.store.reading() as snapshot:
        assert kb.require(snapshot.queries, "default").slug == "default"
        error = refusal(kb.require, snapshot.queries, "defualt")
    assert (error.field, error.valid_values) == ("$.params.slug", ["default"])


@pytest.mark.parametrize("expected, is_refused", [(None, False), (3, False), (2, True), (0, True)])
def test_a_change_of_another_revision_is_a_conflict(expected: int | None, is_refused: bool) -> None:
    if not is_refused:
        lookup.check_revision(document(), expected)
        return
    error = refusal(lookup.check_revision, document(), expected)
    assert (error.type, error.detail) == ("resource.conflict", {"revision": 3})


@pytest.mark.parametrize(
    "row, method, hint",
    [
        (document("knowledge"), "doc.update", "knowledge.supersede"),
        (document("note"), "doc.update", "note.put"),
        (document("knowledge", deleted_at=NOW), "doc.restore", "events.revert with seqs [9]"),
        (document("note", deleted_at=NOW), "doc.restore", "note.get with as_of 8 shows"),
        (document("note"), "doc.restore", "note.get with as_of shows"),
    ],
)
def test_entries_and_notes_have_methods_of_their_own(
    row: DocumentRow, method: str, hint: str
) -> None:
    lookup.refuse_others([document(), document("code")], method=method, field="$.params.ids")
    error = refusal(lookup.refuse_others, [document(), row], method=method, field="$.params.ids")
    noun = "an entry" if row.type == "knowledge" else "a note"
    assert error.message.startswith(f"7 is {noun}, and {method} changes")
    assert hint in error.hint


def test_a_missing_document_is_told_from_a_deleted_one(session: Session) -> None:
    for number in range(4):
        session.data("doc.create", title=f"T{number}", text=f"text {number}")
    plan = session.error("doc.delete", ids=[2])["plan"]
    session.data("doc.delete", ids=[2], confirm=plan["plan_hash"])
    plan = session.error("store.purge", document_ids=[3])["plan"]
    session.data("store.purge", document_ids=[3], confirm=plan["plan_hash"])
    with session.store.reading() as snapshot:
        queries = snapshot.queries
        assert lookup.require(queries, 1).title == "T0"
        reasons = {id: refusal(lookup.require, queries, id) for id in (2, 3, 99)}
        assert [row.id for row in lookup.require_all(queries, [4, 1, 4], field="f")] == [4, 1]
        missing = refusal(lookup.require_all, queries, [99, 1, 2, 3, 99], field="f").detail
    assert "was deleted" in reasons[2].message
    assert "was purged" in reasons[3].message
    assert reasons[99].message == "There is no document 99."
    assert missing["missing"][:2] == [99, 2]
