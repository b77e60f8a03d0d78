"""While several large files are read at once, progress names one of them."""

from __future__ import annotations

from kbproc.engine.sources.parse.progress import Progress
from kbproc.knowledge.documents.content import UnderWay


def page(number: int) -> Progress:
    return Progress(unit="page", done=number, total=500)


def test_the_file_that_began_first_is_told_of() -> None:
    under_way = UnderWay()
    assert under_way.news() is None
    with under_way.reading("b.pdf") as tell_second:
        with under_way.reading("a.pdf") as tell_first:
            tell_first(page(1))
            tell_second(page(7))
            assert under_way.news() == "a.pdf: page 1 of 500"
            assert under_way.news() is None
            tell_first(page(120))
            assert under_way.news() == "a.pdf: page 120 of 500"
        assert under_way.news() == "b.pdf: page 7 of 500"
    assert under_way.news() is None


def test_a_share_of_a_text_is_at_most_all() -> None:
    shares = [(0, 0), (0, 5), (299, 300), (9, 5)]
    words = [
        Progress(unit="character", done=done, total=total).in_words() for done, total in shares
    ]
    assert words == [f"{share} % of its text" for share in (0, 0, 99, 100)]
