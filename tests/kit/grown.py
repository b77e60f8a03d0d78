"""Exports and imports facts that no struct has yet: gives each struct one more member, as a process
of its own, because a struct can't grow once other modules have imported it.
"""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from types import ModuleType

# Module → a line of it, and the member to put after that line.
GROWTH = {
    "kbproc.engine.events.entry": {"derived_from: list[int] = []": 'mood: str = ""'},
    "kbproc.engine.events.document": {
        "aliases: list[str] = []  # further names": 'color: str = ""',
        'stamp: str = ""': 'hand: str = ""',
    },
    "kbproc.engine.projections.catalog.rows": {
        "review_after: str | None\n    aliases: list[str] = []": 'mood: str = "?"',
        'origin: Origin = "agent"\n    aliases: list[str] = []': 'color: str = "?"',
    },
}


def grow(name: str, members: dict[str, str]) -> ModuleType:
    spec = find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    source = Path(spec.origin).read_text()
    for line, member in members.items():
        assert line in source, f"{name} has no {line!r} any more"
        at = source.index("\n", source.index(line) + len(line))
        source = f"{source[:at]}\n    {member}{source[at:]}"
    module = sys.modules[name] = module_from_spec(spec)
    exec(compile(source, spec.origin, "exec"), module.__dict__)
    package, _, own = name.rpartition(".")
    setattr(sys.modules[package], own, module)
    return module


def main(folder: Path) -> None:
    for name, members in GROWTH.items():
        grow(name, members)
    from kbproc.engine.events.document import SourceFacts
    from tests.kit import knowledge
    from tests.kit.talk import Session

    one, two = (Session(folder / name, cwd=folder, model="none") for name in ("one", "two"))
    knowledge.entry(one.store, "Learned", mood="calm")
    document = knowledge.written(
        one.store,
        "Guide",
        "alpha",
        kb="default",
        doc_type="text",
        color="red",
        source_facts=SourceFacts(hand="ann"),
    )
    knowledge.put(one.store, document)
    one.data("store.export", path="all.ndjson")
    two.data("store.import", path="all.ndjson")
    with two.store.reading() as snapshot:
        rows = snapshot.queries.all_documents()
        [entry] = snapshot.queries.all_entries()
        members = {
            "mood": entry.mood,
            "color": [row.color for row in rows],
            "hand": [row.facts.hand for row in rows if row.facts],
        }
    print(json.dumps(members))
    for session in (one, two):
        session.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
