"""Hits of a page that give one thing two values say so; those that only seem to do not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kbproc.engine.projections.catalog.rows import HitRow
from kbproc.knowledge.search.conflicts import Conflict, DatedHit, conflicts
from kbproc.knowledge.search.hits import as_hits
from kbproc.surfaces.hooks.prompt import quotation_of
from tests.kit.talk import Session

MAY, JUNE, JULY = "2026-05-03", "2026-06-01", "2026-07-01"
OLD, NEW = "2026-05-03T08:00:00.000Z", "2026-11-20T08:00:00.000Z"


class Source(NamedTuple):
    """A text with what its row says beside it."""

    text: str
    members: dict[str, Any]


def doc(text: str, **members: Any) -> Source:
    return Source(text, {"title": "Guide", "type": "text", **members})


def entry(title: str, text: str = "As agreed.", **members: Any) -> Source:
    return Source(text, {"title": title, "type": "knowledge", **members})


def said(text: str, **members: Any) -> Source:
    return Source(text, {"title": "Chat", "type": "conversation", **members})


def found(*sources: Source, moments: tuple[str | None, ...] = (OLD, NEW)) -> dict[int, Conflict]:
    """Returns the number of a source, from 1, → its first conflict. The second is the newer."""
    hits = []
    for number, (source, moment) in enumerate(zip(sources, moments, strict=True), 1):
        members = {"kb": "default", "section": None, "document_id": number, **source.members}
        members.pop("place", None)
        row = HitRow(chunk_id=number, text=source.text, created_at=OLD, **members)
        place = source.members.get("place", (0, len(source.text)))
        hits.append(DatedHit(row, place, row.section, f"{row.title}.md", moment))
    return {id: some[0] for id, some in conflicts(hits).items()}


LIMIT, LIMIT_60 = doc("The upload limit is 30 MB."), doc("The upload limit is 60 MB.")
CONFLICTS = [
    (LIMIT, LIMIT_60, "30 MB", "60 MB"),
    (LIMIT, doc("Upload limit: 60 MB"), "30 MB", "60 MB"),
    (LIMIT, doc("# Uploads\n- **Upload limit**: 1 GB\n"), "30 MB", "1 GB"),
    (doc("The retry limit defaults to 3."), doc("The default retry limit is 5."), "3", "5"),
    (doc("The call takes ten minutes."), doc("The call takes two minutes."), None, "two minutes"),
    (doc("Backups are kept for 30 days."), doc("Backups are kept for 4 weeks."), None, "4 weeks"),
    (doc("Idle sessions end after 1 h."), doc("Idle sessions end after 90 min."), "1 h", "90 min"),
    (doc("A token allows up to 9 calls."), doc("A token allows up to 99 calls."), None, "99 calls"),
    (doc("The office is in Bern."), doc("The office is in Zurich."), "Bern", "Zurich"),
    (doc("The deploy branch is `main`."), doc("The deploy branch is `next`."), "main", "next"),
    (doc("search.timeout_s = 30"), doc("search.timeout_s = 60"), "30", "60"),
    (doc("UPLOAD_LIMIT=30"), doc("UPLOAD_LIMIT: 60"), "30", "60"),
    (doc("Sign-up is disabled."), doc("Sign-up is enabled."), "disabled", "enabled"),
    (doc("A review is required."), doc("A review is optional."), "required", "optional"),
    (doc("The release is on 3 May 2026."), doc("The release is on 2026-06-01."), None, JUNE),
    (doc("The release is on May 3."), doc("The release is on June 1."), "May 3", "June 1"),
    (doc("Standup: Tuesday 10:00"), doc("The standup is on Monday 9:30."), None, "Monday 9:30"),
    (doc("The runtime version is 14.2.1."), doc("The runtime version is 15.0.0."), None, "15.0.0"),
    (doc("The office rent is $1,200."), doc("The office rent is $1,500."), "$1,200", "$1,500"),
    (doc("Build cache hits: 40 %"), doc("Build cache hits: 80%"), "40 %", "80%"),
    (doc("The mail host is a.example.org."), doc("The mail host is b.example.org."), None, None),
    (LIMIT, doc("The upload limit is 60 MB now.", title="Handbook"), "30 MB", "60 MB"),
    (LIMIT, doc("The upload limit is 60 MB.", section="Limits", path="/w/a.md"), None, None),
    (doc(LIMIT.text, path="/w/a.md"), doc(LIMIT_60.text, path="/w/more/b.md"), None, None),
    (
        doc(LIMIT.text, title="Notes of 3 May"),
        doc(LIMIT_60.text, title="Notes of 1 June"),
        None,
        None,
    ),
    (entry("Tokens last 60 minutes"), entry("Tokens last 15 minutes"), None, "15 minutes"),
    (entry("Backups are encrypted"), entry("The backups aren't encrypted"), "yes", "no"),
    (entry("Tests do not need Docker"), entry("Tests need Docker"), "no", "yes"),
    (entry("Office code", "4711"), entry("Office code", "4712."), "4711", "4712"),
    (entry("Deploy branch", "main"), entry("The deploy branch is `release`"), "main", "release"),
    (
        entry("Deploy window", "Tuesday 10:00", aliases=["release window"]),
        entry("The release window is Friday 9:00"),
        "Tuesday 10:00",
        "Friday 9:00",
    ),
    (entry("Uploads", "The upload limit is 30 MB."), LIMIT_60, "30 MB", "60 MB"),
    (entry("The upload limit is 30 MB"), doc(LIMIT_60.text, title="Storage"), "30 MB", "60 MB"),
    (entry("The office is in Bern", valid_from=MAY), entry("The office is in Basel"), None, None),
    (said("The upload limit is 30 MB."), said("The upload limit is 60 MB."), "30 MB", "60 MB"),
]
NONE = [
    (LIMIT, doc("The upload limit is 30,000 KB.")),
    (LIMIT, doc("The upload limit is 30.2 MB.")),
    (LIMIT, doc("The upload limit, e.g. for teams. The upload limit is 60 MB?")),
    (LIMIT, doc(f"{'So it is. ' * 9}The upload limit is 600 MB.", place=(0, 32))),  # cut in 600
    (LIMIT, doc(f"Here.\n{LIMIT_60.text}", place=(0, 5), marks='[[0],[6,null,"On phones"]]')),
    (LIMIT, doc(f"{'word ' * 60}. {LIMIT_60.text}", place=(0, 9))),
    (doc("The demo is on 3 May."), doc("The demo is on 2026-05-03.")),
    (doc("The demo is at 9:30."), doc("The demo is at 09:30.")),
    (doc("Production:\n- Port: 80"), doc("Staging:\n- Port: 90")),
    (LIMIT, doc("The download limit is 60 MB.")),
    (LIMIT, doc("The upload limit is 60 s.")),
    (LIMIT, doc("The upload limit is at most 60 MB.")),
    (doc("Logs are kept for 30 days."), doc("Backups are kept for 60 days.")),
    (LIMIT, doc("Is the upload limit: 60 MB?")),
    (LIMIT, doc("If the upload limit is 60 MB, it fails.")),
    (LIMIT, doc("The upload limit was 60 MB.")),
    (LIMIT, doc("The upload limit is not 60 MB.")),
    (LIMIT, doc("The upload limit is 60 MB for teams.")),
    (LIMIT, doc("The upload limit is 60 MB, or 90 MB for teams.")),
    (LIMIT, doc("The upload limit is 10–60 MB.")),
    (LIMIT, doc("The upload limit is about 60 MB.")),
    (LIMIT, doc("In dev, the upload limit is 60 MB.")),
    (LIMIT, doc("The upload limit should be 60 MB.")),
    (LIMIT, doc("The upload limit is 60 MB.", section="Staging")),
    (LIMIT, doc("The upload limit is 60 MB.", tags=["prod"])),
    (LIMIT, doc("The upload limit is 60 MB.", title="Payments")),
    (LIMIT, doc("The upload limit is 60 MB.", kb="other")),
    (LIMIT, doc("The upload limit is 60 MB.", document_id=1)),
    (LIMIT, doc("The upload limit is 60 MB.", type="code")),
    (LIMIT, doc("The upload limit is 60 MB.", origin="web")),
    (LIMIT, doc("The upload limit is 60 MB. The upload limit is 90 MB.")),
    (doc(LIMIT.text, tags=["app"]), doc(LIMIT_60.text, tags=["site"])),
    (doc("port = 80", path="/w/prod/a.txt"), doc("port = 90", path="/w/a.txt")),
    (doc("port = 80", path="/w/shop/a.md"), doc("port = 90", path="/w/mail/a.md")),
    (doc("port = 80", path="/w/shop/a.md"), doc("port = 90", path="/w/a.md")),
    (doc("  timeout: 30"), doc("  timeout: 60")),
    (doc("where T: Input"), doc("where T: Output")),
    (doc("The port is 80.", section="Linux"), doc("The port is 90.", section="Windows")),
    (doc("The port is 80.", section="Version 2.1"), doc("The port is 90.", section="Version 2.2")),
    (doc("Version: 2"), doc("Version: 3")),
    (doc("Author: Ann Miller"), doc("Author: Bob Stone")),
    (doc("Step 2: Build"), doc("Step 2: Deploy")),
    (doc("The value is 2."), doc("The value is 3.")),
    (doc("This takes two minutes."), doc("This takes ten minutes.")),
    (doc("Room 12 is open at 8:00."), doc("Room 14 is open at 9:00.")),
    (doc("The team uses Redis."), doc("The team uses Postgres.")),
    (doc("A good editor is Vim."), doc("A good editor is Emacs.")),
    (doc("The sponsors are Acme."), doc("The sponsors are Initech.")),
    (doc("The project lead is Ann."), doc("The project lead is Ann Miller.")),
    (doc("The runtime version is 3.11.0."), doc("The runtime version is v3.11.0.")),
    (doc('"max_tokens": 10'), doc('"max_tokens": 20')),
    (doc("client.call(max_tokens=10, top=2)"), doc("client.call(max_tokens=20, top=2)")),
    (
        entry("Office", "The code is 4711.", valid_to=JUNE),
        entry("Office", "The code is 4712.", valid_from=JULY),
    ),
    (entry("The office is in Bern", superseded_by=2), entry("The office is in Basel")),
    (entry("Dev settings", "The api port is 80."), entry("Prod settings", "The api port is 90.")),
    (entry("Payments", "The timeout is 30 s."), entry("Search", "The timeout is 60 s.")),
    (entry("Backups are encrypted"), entry("Logs are not encrypted")),
    (entry("Backups are encrypted", kb="a"), entry("Backups are not encrypted", kb="b")),
    (entry("Deploys", "Ask Ann first."), entry("Deploys", "Wait for CI.")),
    (said("My phone number is 30."), said("My phone number is 60.")),
    (said("The limit is 30."), said("The limit is 60.")),
]


def test_two_values_for_one_thing_are_said(subtests: pytest.Subtests) -> None:
    for old, new, value, other in CONFLICTS:
        with subtests.test(old=old.text, new=new.text):
            marks = found(old, new)
            assert list(marks) == [1], "only the older says so"
            mark = marks[1]
            assert mark.older and mark.document_id == 2
            assert value in (None, mark.value) and other in (None, mark.other_value)
            says = f"{mark.value}; {new.members['title']}.md (2026-11-20) says {mark.other_value}"
            assert mark.says == f"older: says {says}"
            assert list(found(new, old, moments=(NEW, OLD))) == [2], "in any order"


def test_near_pairs_are_no_conflicts(subtests: pytest.Subtests) -> None:
    for one, other in NONE:
        with subtests.test(one=one.text, other=other.text):
            assert found(one, other) == {}


def test_of_near_pairs_only_opposites_are_marked() -> None:
    pairs = json.loads(Path(__file__).with_name("near_pairs.json").read_text())
    marked = [
        pair["relation"]
        for pair in pairs
        if found(*(entry(pair[at]["title"], pair[at]["body"]) for at in ("one", "other")))
    ]
    assert marked == ["opposite"] * 5


def test_without_a_newer_one_both_say_so() -> None:
    for moments in ((None, NEW), (NEW, NEW), (None, None)):
        marks = found(LIMIT, LIMIT_60, moments=moments)
        assert [mark.older for mark in marks.values()] == [False, False]
        assert marks[2].says.startswith("differs: says 60 MB; Guide.md")


def test_the_newest_of_three_is_said_and_many_values_are_none() -> None:
    middle = "2026-08-01T08:00:00.000Z"
    three = [LIMIT, doc("The upload limit is 40 MB."), LIMIT_60]
    marks = found(*three, moments=(OLD, middle, NEW))
    assert {id: mark.other_value for id, mark in marks.items()} == {1: "60 MB", 2: "60 MB"}
    assert found(*three, doc("The upload limit is 90 MB."), moments=(OLD, middle, NEW, NEW)) == {}


def test_an_answer_says_which_hit_is_the_older(session: Session) -> None:
    for minute, limit in ((30, "30 MB"), (31, "60 MB")):
        moment = f"2026-01-01T00:{minute}:00Z"
        title = f"The upload limit is {limit}"
        session.data("knowledge.store", title=title, body="As agreed.", valid_from=moment)
    for method in ("search", "knowledge.search"):
        answer = session.data(method, query="upload limit", mode="fts")
        hits = answer["results"]
        marks = {hit["source"]["title"][-5:]: hit.get("conflicts") for hit in hits}
        says = "older: says 30 MB; The upload limit is 60 MB (2026-01-01) says 60 MB"
        mark = {"document_id": 2, "value": "30 MB", "other_value": "60 MB", "older": True}
        assert marks == {"30 MB": [{**mark, "says": says}], "60 MB": None}
        assert sum(hit.where.endswith(f"\n{says}") for hit in as_hits(answer, {}).hits) == 1
        quoted = [quotation_of(hit, Path()).place for hit in hits]
        assert sorted(quoted) == [f"entry 1, {says}", "entry 2"]
        foreign = [quotation_of({**hit, "origin": "web"}, Path()).place for hit in hits]
        assert sorted(foreign) == ["entry 1", "entry 2"], "whose title may be foreign, too"
    session.data("knowledge.supersede", old_id=1, new_id=2)
    hits = session.data("search", query="upload limit", mode="fts", include_superseded=True)
    assert len(hits["results"]) == 2 and not any("conflicts" in hit for hit in hits["results"])
