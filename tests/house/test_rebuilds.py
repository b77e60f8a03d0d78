"""Stores are compared with their logs where a file of tests writes something new."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbproc.engine.projections.catalog.catalog import Catalog
from tests.kit.patience import LONG
from tests.kit.rebuilds import Rebuilds
from tests.kit.talk import Session


@pytest.mark.skipif(LONG, reason="every store is compared")
def test_a_store_is_compared_if_its_log_has_a_new_step(tmp_path: Path, bench: Catalog) -> None:
    rebuilds = Rebuilds(bench)
    one, two = (Session(tmp_path / name, cwd=tmp_path) for name in ("one", "two"))
    compared = []
    for session in (one, two):
        session.data("doc.create", title="heron", text="a grey bird")
        compared.append(rebuilds.check(session.store))
    two.data("doc.create", title="crane", text="a bird of grey")
    compared += [rebuilds.check(two.store), rebuilds.check(two.store)]
    assert compared == [True, False, True, False], "a document after a document is new"
    two.data("doc.update", id=1, title="Heron")
    assert rebuilds.check(two.store)
    for session in (one, two):
        session.close()


def test_a_projection_that_differs_is_found(
    tmp_path: Path, bench: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Session(tmp_path / "store", cwd=tmp_path)
    session.data("doc.create", title="heron", text="a grey bird")
    monkeypatch.setattr(
        "kbproc.engine.projections.catalog.queries.Queries.digest", lambda queries: object()
    )
    with pytest.raises(AssertionError, match="differs from the log"):
        Rebuilds(bench).check(session.store)
    session.close()
