"""The closest inverse that a write names takes it back, where it is not events.revert.

For events.revert see test_examples.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kbproc.methods.all import registry
from tests.kit.talk import Session
from tests.kit.world import carried_out, filled

NOTE: dict[str, Any] = {"agent": "gitea", "slug": "gitea-webhooks"}
TEXT = "# Webhooks\n\nGitea signs deploy hooks with a shared secret."
FOLDER = {"folder": "watched"}
# Write → its params and those of its inverse, in the store of tests/kit/world.py.
WRITES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "doc.update": ({"id": 2, "text": "Finished."}, {"ids": [2], "revision": 2}),
    "chunk.delete": ({"ids": [1]}, {"ids": [1], "revision": 1}),
    "doc.delete": ({"ids": [1]}, {"ids": [1]}),
    "knowledge.supersede": ({"old_id": 3, "new_id": 4}, {"old_id": 3, "new_id": 4}),
    "knowledge.unsupersede": ({"old_id": 5, "new_id": 4}, {"old_id": 5, "new_id": 4}),
    "note.put": ({**NOTE, "text": "# Webhooks\n\nNo."}, {**NOTE, "text": TEXT}),
    "note.delete": (NOTE, {**NOTE, "text": TEXT}),
    "watch.add": (FOLDER, FOLDER),
    "watch.remove": (FOLDER, FOLDER),
}
# tests/cluster and tests/models have what these need; note.sync reads what people changed, and
# doc.reparse changes something only after a change of the parsers.
ELSEWHERE = {
    "doc.reparse",
    "store.move",
    "cluster.init",
    "cluster.join",
    "cluster.leave",
    "model.use",
    "note.sync",
}


def test_the_closest_inverse_takes_a_write_back(tmp_path: Path) -> None:
    world = filled(tmp_path)
    (world / FOLDER["folder"]).mkdir()
    session = Session(world / "store", cwd=world)
    methods = registry().methods
    named = {name for name, method in methods.items() if method.undone_by}
    named = {name for name in named if methods[name].undone_by[:1] != ("events.revert",)}
    assert named == WRITES.keys() | ELSEWHERE
    for name, (params, inverse_params) in WRITES.items():
        if name == "watch.remove":
            session.data("watch.add", **params)
        before = state(session)
        done = carried_out(session, name, **params)
        assert "result" in done and state(session) != before, (name, done)
        inverse = methods[name].undone_by[0]
        assert "result" in (back := carried_out(session, inverse, **inverse_params)), back
        assert state(session) == before, name
    session.close()


def state(session: Session) -> Any:
    """Returns what the store shows, without times and revisions."""
    session.embedded()
    documents = session.data("doc.list", types=["markdown", "text", "knowledge", "note"])
    contents = [session.data("doc.get", id=one["id"], text=True) for one in documents]
    chunks = [session.data("chunk.list", document_id=one["id"]) for one in documents]
    return (
        sorted((one["title"], one["text"], one.get("superseded_by")) for one in contents),
        sorted(chunk["text"] for some in chunks for chunk in some),
        [one["path"] for one in session.data("watch.list")],
        [
            one.get("superseded_by")
            for one in session.data("knowledge.list", include_superseded=True)
        ],
    )
