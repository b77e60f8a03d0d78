"""A store of a file's own texts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kbproc.engine.projections.catalog.catalog import Catalog
from tests.kit.shared import shared_store
from tests.kit.talk import Session


@pytest.fixture(scope="module")
def filled(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, bench: Catalog
) -> Iterator[Session]:
    """Yields a store with a document for each title and text of the file's TEXTS."""
    with shared_store(tmp_path_factory.mktemp("filled"), bench) as session:
        for title, text in request.module.TEXTS.items():
            session.data("doc.create", title=title, text=text)
        session.embedded()
        yield session
