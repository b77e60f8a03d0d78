"""How far records can be taken off an object's end, and what a revert reports."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from kbproc.engine.events.document import DocDeleted
from kbproc.knowledge.history.reversal import (
    MOST_LISTED,
    Reversal,
    StateLine,
    Subject,
    Undoing,
    unwind,
)
from kbproc.knowledge.history.timeline import Touch


def touch(seq: int, method: str = "doc.update") -> Touch:
    return Touch(seq=seq, ts=f"t{seq}", actor="ann", method=method, types=frozenset())


def line(*states: str, restores: Sequence[int] = ()) -> StateLine:
    """Returns a line of one state per touch, with seqs from 1; some only restore a state."""
    line = StateLine()
    for seq, state in enumerate(states, 1):
        line.add(touch(seq, "events.revert" if seq in restores else "doc.update"), state)
    return line


def seqs(touches: Sequence[Touch]) -> list[int]:
    return [touch.seq for touch in touches]


@given(states=st.lists(st.sampled_from("ab"), max_size=8), chosen=st.sets(st.integers(1, 8)))
def test_records_are_taken_off_the_end_only(states: list[str], chosen: set[int]) -> None:
    unwound = unwind(line(*states), chosen)
    at = len(states)
    while at and at in chosen:
        at -= 1
    assert unwound.to == at - 1
    assert seqs(unwound.undone) == list(range(len(states), at, -1))
    assert seqs(unwound.blocked) == sorted(seq for seq in chosen if seq <= at)
    assert unwound.already == []


@given(
    states=st.lists(st.sampled_from("ab"), max_size=8),
    restores=st.sets(st.integers(1, 8)),
    chosen=st.sets(st.integers(1, 8)),
)
def test_every_chosen_record_is_accounted_for_once(
    states: list[str], restores: set[int], chosen: set[int]
) -> None:
    """A record is undone, undone by another already, or blocked; and the state to go back to is
    that after the last record that counts.
    """
    the_line = line(*states, restores=sorted(restores))
    unwound = unwind(the_line, chosen)
    already = [one.seq for one, _ in unwound.already]
    all_parts = [*seqs(unwound.undone), *already, *seqs(unwound.blocked)]
    assert sorted(all_parts) == sorted(chosen & set(range(1, len(states) + 1)))
    assert all(by.seq in restores and by.seq > one.seq for one, by in unwound.already)
    assert set(range(unwound.to + 2, len(states) + 1)) >= {*seqs(unwound.undone), *already}


def test_a_record_that_a_restore_has_undone_is_passed_over() -> None:
    """a b a: the third record only brought the first state back, so that can go, too."""
    unwound = unwind(line("a", "b", "a", restores=[3]), {1, 2})
    assert (unwound.to, seqs(unwound.undone)) == (-1, [1])
    assert [(one.seq, by.seq) for one, by in unwound.already] == [(2, 3)]
    blocked = unwind(line("a", "b", "a"), {1, 2})
    assert (blocked.to, seqs(blocked.blocked)) == (2, [1, 2])


def test_states_before_the_first_touch_count() -> None:
    restored = StateLine([touch(1), touch(2, "doc.restore")], ["b", "a"], before="a")
    assert unwind(restored, {1}).to == -1
    assert [one.seq for one, _ in unwind(restored, {1}).already] == [1]


def document(id: int) -> Subject:
    return Subject("document", id, f"document {id}")


def outcome(undoing: Undoing, *seqs: int) -> Reversal:
    data = undoing.decision(frozenset(seqs), bulk=False).data
    assert isinstance(data, Reversal)
    return data


def test_a_title_is_in_the_plan_and_not_in_the_outcome() -> None:
    """The outcome stays in the log, where a purge of the document would not find the title."""
    undoing = Undoing(left_out=0)
    subject = Subject("document", 7, "document 7", "Secret")
    undoing.keep(subject, [touch(3)], "was changed later")
    decision = undoing.decision(frozenset({3}), bulk=False)
    assert decision.changes[1] == "kept: document 7 “Secret” was changed later"
    [part] = decision.data.kept
    assert (part.seq, part.document_id, part.why) == (3, 7, "document 7 was changed later")


def test_records_are_reported_once_and_in_order() -> None:
    undoing = Undoing(left_out=0)
    undoing.does(document(9), [touch(5), touch(2)], [DocDeleted(id=1)], "hide 1")
    undoing.does(document(4), [touch(5)], [DocDeleted(id=2)], "hide 2")
    undoing.keep_record(8, "lost")
    undoing.keep(Subject("kb", "books", "knowledge base books"), [touch(1)], "is not empty")
    data = outcome(undoing, 1, 2, 5, 8)
    assert [one.seq for one in data.reverted] == [2, 5]
    assert (data.documents, data.ids, data.hint) == (2, [4, 9], None)
    assert [(one.seq, one.kb) for one in data.kept] == [(1, "books"), (8, None)]
    decision = undoing.decision(frozenset({1, 2, 5, 8}), bulk=True)
    assert decision.changes[0] == "undo 2 of 4 records: 2 documents changed, 2 kept"
    assert decision.changes[-2:] == ["hide 1", "hide 2"]
    assert decision.bound == ["record 1", "record 2", "record 5", "record 8"]


def test_lists_are_bounded_and_counts_are_not() -> None:
    undoing = Undoing(left_out=0)
    for n in range(MOST_LISTED + 5):
        undoing.does(document(n), [], [], "")
    undoing.keep(document(1), [touch(n) for n in range(MOST_LISTED + 5)], "stays")
    data = outcome(undoing)
    assert (data.documents, len(data.ids), len(data.kept)) == (MOST_LISTED + 5, 1000, 1000)
    assert data.hint == "There is nothing to revert; kept says why."
