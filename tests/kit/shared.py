"""Opens a store that all tests of a file read, and compares it with its log at the end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kbproc.engine.projections.catalog.catalog import Catalog
from kbproc.knowledge.app.health import doctor
from tests.kit.patience import PATIENCE
from tests.kit.talk import Session


@contextmanager
def shared_store(folder: Path, bench: Catalog) -> Iterator[Session]:
    """Opens a store in `folder`; at the end its projections must be those of its log."""
    session = Session(folder / "store", cwd=folder)
    yield session
    session.connection.end(PATIENCE)
    session.service.close()
    comparison = doctor.compare(session.store, bench)
    assert {name: wrong for name, wrong in comparison.items() if wrong} == {}
    session.library.close()
