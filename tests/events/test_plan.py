"""An approval names the person who approved, and can't be undone by itself."""

from __future__ import annotations

from kbproc.engine.events import codec
from kbproc.engine.events.event import NextIds, Subject
from kbproc.engine.events.plan import PlanApproved


def test_an_approval_is_written_with_its_tag_and_read_again() -> None:
    event = PlanApproved(by="ann")
    data = codec.encode([event])
    assert bytes(data) == b'[{"type":"plan.approved","by":"ann"}]'
    assert list(codec.decode(data)) == [event]


def test_an_approval_concerns_nothing_of_its_own() -> None:
    event = PlanApproved(by="ann")
    assert event.summary() == "approved by ann"
    assert (event.concerns(), event.gives()) == (Subject(), NextIds())
    assert PlanApproved.stays == "it only names who approved"
