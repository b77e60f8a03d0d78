"""The place of a hit's passage: pages, section, lines, and a line to cite."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kbproc.engine.projections.catalog.catalog import Catalog
from tests.kit.pdfs import pdf, text_page
from tests.kit.shared import shared_store
from tests.kit.talk import Session

GUIDE = """# The guide

First words.

## Install

### Linux

Run the package manager.

### macOS

Use the formula of brew.

## Remove

```sh
apt purge it
```
"""
CODE = '''"""What is kept."""

LIMIT = 3


class Store:
    def put(self, key):
        """Keeps a key."""
        if key in self.known:
            raise Twice(key)

    def drop(self, key):
        return self.gone(key)
'''


def source_of(session: Session, query: str, **params: Any) -> dict[str, Any]:
    results = session.data("search", query=query, **params)["results"]
    source: dict[str, Any] = results[0]["source"]
    return source


def place(source: dict[str, Any]) -> tuple[Any, ...]:
    names = ("page", "page_end", "section", "start_line", "end_line")
    return tuple(source[name] for name in names)


@pytest.fixture(scope="module")
def docs(tmp_path_factory: pytest.TempPathFactory, bench: Catalog) -> Iterator[Session]:
    base = tmp_path_factory.mktemp("docs")
    with shared_store(base, bench) as session:
        folder = base / "docs"
        folder.mkdir()
        pages = (["Preface of the report."], ["Costs rose."], ["Tungsten melts at 3422 degrees."])
        (folder / "report.pdf").write_bytes(pdf(*map(text_page, pages), info="/Title (The report)"))
        (folder / "guide.md").write_text("---\ntags: [x]\n---\n" + GUIDE)
        (folder / "store.py").write_text(CODE)
        (folder / "log.txt").write_text("One thing.\n\n\nAnother thing\nhappened at noon.\n")
        session.data("doc.ingest", paths=[str(folder)])
        yield session


def test_a_page_is_that_of_the_answer(docs: Session) -> None:
    origin = source_of(docs, "melting point of tungsten")
    assert (origin["page"], origin["page_end"]) == (3, 3)
    assert origin["cite"] == "The report, p. 3"
    assert origin["total_chunks"] == 1, "short pages share a chunk"
    both = source_of(docs, "costs and tungsten")
    assert (both["page"], both["page_end"], both["cite"]) == (2, 3, "The report, pp. 2–3")


def test_a_section_is_that_of_the_answer(docs: Session) -> None:
    origin = source_of(docs, "formula of brew")
    assert place(origin) == (None, None, "Install > macOS", 16, 16)
    assert origin["cite"] == "The guide, § Install > macOS"
    assert origin["total_chunks"] == 1, "short sections share a chunk"
    assert place(source_of(docs, '"apt purge"')) == (None, None, "Remove", 21, 21)
    assert source_of(docs, "first words")["cite"] == "The guide, line 6"


def test_lines_of_code(docs: Session) -> None:
    origin = source_of(docs, "raise twice known")
    assert origin["section"] == "class Store > def put"
    assert (origin["start_line"], origin["end_line"]) == (9, 10)
    assert origin["cite"] == "store.py, § class Store > def put, lines 9–10"
    assert source_of(docs, "another thing noon")["cite"] == "log.txt, lines 4–5"


def test_without_a_word_that_matches_it_is_the_whole_chunk(docs: Session) -> None:
    docs.embedded()
    origin = source_of(docs, "ungsten egrees reface", mode="vector", types=["pdf"])
    assert (origin["page"], origin["page_end"], origin["cite"]) == (1, 3, "The report, pp. 1–3")


def test_chunks_tell_their_lines(docs: Session) -> None:
    (guide,) = (d["id"] for d in docs.data("doc.list", types=["markdown"]))
    (chunk,) = docs.data("chunk.list", document_id=guide)
    assert (chunk["start_line"], chunk["end_line"], chunk["page_end"]) == (4, 21, None)


def test_an_entry_is_cited_by_its_title(session: Session) -> None:
    session.data("knowledge.store", title="Cache of CI", body="It lies in /var/cache.")
    assert source_of(session, "cache")["cite"] == "Cache of CI"
