"""What is acknowledged outlives a power failure, which takes whatever was not synced."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbproc.base.checksums.journal import Journal
from kbproc.sources.blobs import digest
from tests.conftest import OpenSession
from tests.kit.faults import as_killed

TEXTS = [f"The tide of day {n} is high." for n in range(20)]


@pytest.mark.parametrize("left", [None, b"", b"The tide"])
def test_sources_whose_files_were_not_synced(
    open_session: OpenSession, tmp_path: Path, left: bytes | None
) -> None:
    session = open_session()
    for text in TEXTS:
        session.data("doc.create", title="Tide", text=text)
    after = tmp_path / "after"
    as_killed(session.store.folder, after)
    journaled = Journal(after / "blobs.journal").read()
    assert {text.encode() for text in TEXTS[1:]} <= set(journaled)
    for source in journaled if left is not None else ():  # it failed while the files were made
        sha256 = digest(source)
        path = after / "blobs" / sha256[:2] / sha256
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(left or b"")
    again = open_session(after)
    ids = range(1, len(TEXTS) + 1)
    assert [again.data("doc.get", id=id, text=True)["text"] for id in ids] == TEXTS
    assert all(f["status"] != "fail" for f in again.data("doctor", deep=True)["findings"])
    again.close()
    assert not (after / "blobs.journal").exists()
