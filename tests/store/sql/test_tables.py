"""SQL's tables, caught up after any course of changes, equal tables made afresh."""

from __future__ import annotations

import contextlib
import itertools
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kbproc.engine.events import codec
from kbproc.engine.events.agent import AgentDeleted, AgentWritten
from kbproc.engine.events.event import Event
from kbproc.engine.events.kb import KbCreated, KbDeleted, KbUpdated
from kbproc.engine.events.upkeep import DocPurged
from kbproc.engine.log.record import START, Record, seal_all
from kbproc.engine.projections.catalog import changes
from kbproc.engine.projections.catalog.catalog import Catalog
from kbproc.engine.store.sql import tables
from kbproc.engine.store.sql.views import SCHEMA, VIEWS
from tests.kit.patience import LONG
from tests.kit.records import draft_of
from tests.kit.steps import conversations, records, steps, talks

rosters = st.lists(st.tuples(st.sampled_from("cudawxp"), st.integers(1, 3)), max_size=15)
cuts = st.lists(st.integers(1, 30), min_size=1, max_size=4)


def roster_events(sequence: Sequence[tuple[str, int]]) -> list[Event]:
    """Returns an event of a knowledge base or an agent for each step, or a purge."""
    events: list[Event] = []
    for number, (what, which) in enumerate(sequence):
        slug = f"k{which}"
        match what:
            case "c":
                events.append(KbCreated(slug=slug, name=f"{number}"))
            case "u":
                events.append(KbUpdated(slug=slug, name=f"{number}", description=""))
            case "d":
                events.append(KbDeleted(slug="k" if number % 2 else slug))
            case "p":
                events.append(DocPurged(ids=[which]))
            case "x":
                events.append(AgentDeleted(slug=slug))
            case _:
                written = AgentWritten(
                    slug=slug,
                    revision=1,
                    description="",
                    kbs=[slug],
                    folder=None,
                    scopes=None,
                    quotas={"n": number},
                    instructions=f"{number}",
                )
                events.append(written)
    return events


def interleaved(*courses: list[list[Event]]) -> list[Record]:
    """Returns records of the courses' events in turns."""
    turns = itertools.chain.from_iterable(itertools.zip_longest(*courses))
    drafts = [draft_of(number, *events) for number, events in enumerate(filter(None, turns))]
    return seal_all(drafts, START)


def events_of(written: list[Record]) -> list[list[Event]]:
    return [list(codec.decode(record.events)) for record in written]


class Tables:
    """SQL's tables, in memory, that follow a catalog.

    They are a database of an open DuckDB, because to open one takes longer than to fill it.
    """

    def __init__(self, folder: Path, duck: duckdb.DuckDBPyConnection, name: str) -> None:
        self._db, self._name = duck.cursor(), name
        self._db.execute(f"attach ':memory:' as {name}; use {name}; begin; {SCHEMA}; commit")
        self._changes, self._seq = folder / "changes.sqlite", 0

    def follow(self, catalog: Catalog) -> dict[str, list[Any]]:
        """Brings the tables to the catalog's position; returns the sorted rows of each view."""
        while self._seq < catalog.position.seq:
            step = changes.write_changes(catalog, self._seq, self._changes, lambda: None)
            tables.take(self._db, str(self._changes), "origin", step.seq, "hash")
            self._seq = step.seq
        assert tables.position_of(self._db) == ["origin", self._seq, "hash"]
        return {view: rows_of(self._db, view) for view in VIEWS}

    def close(self) -> None:
        self._db.execute(f"use memory; detach {self._name}")
        self._db.close()


def rows_of(db: duckdb.DuckDBPyConnection, view: str) -> list[Any]:
    return sorted(db.execute(f"from {view}").fetchall(), key=repr)


# A chain of entries grows and is cut; a session with answers goes and comes back.
CHAIN = (
    [("f", 1, 1)]
    + [("w", id, 1) for id in (1, 2, 3)]
    + [("s", 1, 2), ("s", 2, 3), ("u", 2, 3), ("d", 1, 1)]
)
TALK = [("q", 0), ("s", 0), ("e", 1), ("d", 0), ("c", 0), ("w", 0), ("b", 0), ("p", 0)]
ROSTER = [("c", 1), ("w", 1), ("u", 1), ("x", 1), ("p", 3), ("d", 1), ("d", 2)]


@settings(max_examples=1000 if LONG else 4)
@example(CHAIN, TALK, ROSTER, [1] * 22, 1)
@given(steps, talks, rosters, cuts, st.integers(1, 9))
def test_tables_that_follow_equal_tables_made_afresh(
    sequence: list[tuple[str, int, int]],
    talk: list[tuple[str, int]],
    roster: list[tuple[str, int]],
    sizes: list[int],
    most_rows: int,
) -> None:
    written = interleaved(
        events_of(records([step for step in sequence if step[0] != "s" or step[1] < step[2]])),
        events_of(conversations(talk)),
        [[event] for event in roster_events(roster)],
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rest = iter(written)
        with (
            contextlib.closing(Catalog(folder / "catalog.sqlite")) as catalog,
            duckdb.connect(":memory:", config=tables.CONFIG) as duck,
            contextlib.closing(Tables(folder, duck, "following")) as following,
        ):
            for size in [*sizes, len(written)]:
                catalog.apply(itertools.islice(rest, size))
                catalog.commit()
                with contextlib.closing(Tables(folder, duck, "afresh")) as afresh:
                    expected = afresh.follow(catalog)
                with stepping(most_rows):
                    assert following.follow(catalog) == expected


@contextlib.contextmanager
def stepping(most_rows: int) -> Iterator[None]:
    """Makes each step as small as this."""
    usual, changes.MOST_ROWS = changes.MOST_ROWS, most_rows
    try:
        yield
    finally:
        changes.MOST_ROWS = usual
