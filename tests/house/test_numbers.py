"""Numbers in the docs come from the program, or stand on a page of evidence."""

from __future__ import annotations

import re

import pytest

from tests.conftest import Report
from tests.kit.start import REPO
from tools.generate import numbers

# Names of standards, and versions of Python that pyproject.toml names.
NAMES = ("JSON-RPC\n2.0", "Python 3.11 to 3.14")
_LINK = re.compile(r"\]\((docs/[^)#]*\.md)")


def test_a_number_is_written_anew_and_the_line_stays_broken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in (("dozen", 12), ("many", 20_000)):
        monkeypatch.setitem(numbers.FACTS, name, lambda value=value: value)
    sentence = "{dozen:Word} tools in some {many} tokens"
    monkeypatch.setitem(numbers.SENTENCES, "page.md", (sentence,))
    text = "It has\nnine. Nine\ntools in some\n1,450 tokens, 3 of them\nlong.\n"
    written = text.replace("Nine", "Twelve").replace("1,450", "20,000")
    assert numbers.with_numbers(text, "page.md") == written
    assert numbers.with_numbers(written, "page.md") == written
    assert numbers.uncovered("page.md", text) == [(4, "xxxxxxxxxxxx, 3 of them")]
    for wrong in ("Nine or so tools.", text * 2):
        with pytest.raises(ValueError, match="rewrite the template"):
            numbers.with_numbers(wrong, "page.md")


def test_each_form_of_a_number_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    values = (("part", 1.5), ("whole", 30.0), ("flag", 1000), ("day", "2026-07-28"), ("is", "2.12"))
    for name, value in values:
        monkeypatch.setitem(numbers.FACTS, name, lambda value=value: value)
    sentence = "waits {part} of {whole} s ({flag:plain}) since {day:date} and {is:version} or later"
    monkeypatch.setitem(numbers.SENTENCES, "page.md", (sentence,))
    text = "It waits 0.25 of 1,200.5 s (7) since 2025-01-02 and 1.2.3 or later."
    right = "It waits 1.5 of 30 s (1000) since 2026-07-28 and 2.12 or later."
    assert numbers.with_numbers(text, "page.md") == right
    assert numbers.with_numbers(right, "page.md") == right


def test_every_fact_stands_in_a_sentence() -> None:
    templates = " ".join(part for parts in numbers.SENTENCES.values() for part in parts)
    named = {name for name, _ in re.findall(r"\{(\w+)(:\w+)?\}", templates)}
    assert named == numbers.FACTS.keys()


def test_other_numbers_of_the_readme_stand_on_pages_that_their_section_links(
    none: Report,
) -> None:
    """The sentences of other pages: `python -m tools.generate.numbers` lists them."""
    unproven = list[str]()
    text = (REPO / "README.md").read_text(encoding="utf-8")
    for name in NAMES:
        text = text.replace(name, re.sub(r"[^\n]", "x", name))
    bodies = re.split(r"(?m)^(?=## )", text)
    open_lines = numbers.uncovered("README.md", text)
    first = 1
    for body in bodies:
        last = first + body.count("\n")
        linked = [(REPO / page).read_text(encoding="utf-8") for page in _LINK.findall(body)]
        for number, line in open_lines:
            if first <= number < last:
                missing = [
                    one
                    for one in re.findall(r"(?<![\w.])\.?\d[\d,.]*\b", line)
                    if not any(one in page for page in linked)
                ]
                unproven += [
                    f"README.md:{number}: {one} is on no page that this section links: {line}"
                    for one in missing
                ]
        first = last
    none(unproven)
