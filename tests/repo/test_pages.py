"""The docs' links lead to their targets, and `kbproc docs` shows pages without a network."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from kbproc.base.errors import ERRORS
from kbproc.surfaces.shell import pages
from kbproc.surfaces.shell.printing.pages import as_text
from tests.conftest import Report
from tests.kit.shell import Run, in_process, on_terminal, refused
from tests.kit.start import REPO

SHOWN = ("README.md", "SECURITY.md", "AGENTS.md", "plugin", "docs", "clients", "contract")
LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.M | re.S)


def written() -> list[Path]:
    """Returns the paths of the repository's Markdown pages."""
    roots = [REPO / name for name in SHOWN]
    paths = [path for root in roots for path in ([root] if root.is_file() else root.rglob("*.md"))]
    return [path for path in paths if "node_modules" not in path.parts]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    return in_process(tmp_path, monkeypatch, capsys)


def test_every_doc_url_leads_to_its_section() -> None:
    for row in ERRORS.values():
        page, section = pages.find(row.doc_url)
        assert (page, section.title) == ("errors", row.type)
        assert row.hint in section.text


def test_every_link_leads_somewhere(none: Report) -> None:
    broken = list[str]()
    for path in written():
        text = CODE.sub(lambda code: "\n" * code[0].count("\n"), path.read_text(encoding="utf-8"))
        for match in LINK.finditer(text):
            link, line = match[1], text.count("\n", 0, match.start()) + 1
            target, _, anchor = link.partition("#")
            to = (path.parent / target).resolve() if target else path
            if "://" in link:
                continue
            if not to.exists() or (anchor and not has_section(to, anchor)):
                broken.append(f"{path.relative_to(REPO)}:{line}: {link} is not there")
    none(broken)


def has_section(path: Path, anchor: str) -> bool:
    return anchor in {section.anchor for section in pages.sections(path.read_text("utf-8"))}


def test_a_section_ends_where_the_next_of_its_level_begins() -> None:
    text = "# A\n\nOne.\n\n## B `b`\n\n```sh\n# no heading\n```\n\n### C\n\nx\n\n## B b\n\nlast\n"
    sections = {section.anchor: section.text for section in pages.sections(text)}
    assert list(sections) == ["a", "b-b", "c", "b-b-1"]
    assert sections["a"] == text
    assert sections["b-b"].endswith("### C\n\nx\n") and "# no heading" in sections["b-b"]
    assert sections["b-b-1"] == "## B b\n\nlast\n"


def test_a_page_and_a_section_in_a_shell(run: Run) -> None:
    listed = json.loads(run("docs")[1])["data"]
    assert {"page": "errors", "title": "Errors"} in listed
    pages = [*(REPO / "docs").glob("*.md"), *(REPO / "docs" / "evidence").glob("*.md")]
    assert len(listed) == len(pages)
    for address in ("errors#store.locked", "docs/errors.md#storelocked"):
        section = json.loads(run("docs", address)[1])["data"]
        assert (section["page"], section["section"]) == ("errors", "storelocked")
        assert ERRORS["store.locked"].hint in section["text"] and "<a id" not in section["text"]
    assert run("docs", "shell", "no", "store,", "and", "other", "folders")[0] == 0


def test_a_mistyped_name_gets_the_nearest(run: Run) -> None:
    error = refused(run, "docs", "erors")
    assert (error["type"], error["valid_values"][0]) == ("resource.not_found", "errors")
    assert error["hint"].startswith("Did you mean kbproc docs errors? ")
    error = refused(run, "docs", "errors#store.loked")
    assert error["valid_values"][0] == "errors#storelocked"
    assert refused(run, "docs", "../README")["exit_code"] == 5


def test_it_reads_well_at_80_columns() -> None:
    for name in ("shell", "sessions"):
        page = pages.find(name)[1].text
        lines = as_text(page, width=80, color=False).splitlines()
        prose = [line for line in lines if not line.startswith("    ")]
        assert max(map(len, prose)) <= 80 and not any("\x1b" in line for line in lines)
        assert "```" not in "".join(lines) and "<!--" not in "".join(lines)
        for block in re.findall(r"^```\w*\n(.*?)^```", page, re.M | re.S):  # can be copied
            assert {f"    {line}".rstrip() for line in block.splitlines()} <= set(lines)


def test_links_are_shown_as_the_command_takes_them() -> None:
    page = (
        "Here: [a](#part), [b\nb](../search.md#two), [c](evidence/x.md), [d](https://example.org).\n\n"
        "| x |\n| --- |\n| [e](knowledge.md#review-what-waits-for-an-approval-and-so-on) |\n\n"
        "![a picture](page.png)\n"
    )
    text = as_text(page, width=40, color=False)
    assert " ".join(text.split()[:9]) == (
        "Here: a, b b (search#two), c (evidence/x), d (https://example.org)."
    )
    assert "e (knowledge)" in text and "(Picture: a picture)" in text


def test_on_a_terminal_it_is_drawn(tmp_path: Path) -> None:
    code, output = on_terminal(tmp_path, "docs", "errors#store.locked")
    assert code == 0 and "\x1b[1mstore.locked" in output and "##" not in output


def test_numbers_in_the_readme_stand_where_its_links_lead() -> None:
    readme = (REPO / "README.md").read_text(encoding="utf-8")
    table = readme.partition("## What people ask for\n")[2].partition("\n## ")[0]
    rows = [row.split("|") for row in table.splitlines() if "](docs/" in row]
    assert len(rows) >= 6
    trust = readme.partition("## Why it can be trusted\n")[2].partition("\n## ")[0]
    points = [point for point in trust.split("\n- ") if "docs/evidence" in point]
    assert len(points) >= 2
    # A point states its numbers before its link.
    rows += [["", point[:20], point.partition("](")[0], point, ""] for point in points]
    for _, question, answer, more, _ in rows:
        (link,) = LINK.findall(more)
        there = pages.find(link)[1].text
        for number in re.findall(r"(?<![\w-])\.?\d[\d,.]*\b", answer):
            assert number in there, f"{question.strip()}: {number} is not in {link}"


def test_ten_tasks_are_a_click_and_a_screen_away() -> None:
    """The page says of each task which link leads to it, and on which line its command stands."""
    readme = (REPO / "README.md").read_text(encoding="utf-8")
    table = (REPO / "docs" / "evidence" / "tasks.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1:-1] for line in table.splitlines() if "](../" in line]
    assert len(rows) == 10
    for task, clicks, page, command, line in rows:
        (link,) = LINK.findall(page)
        assert f"](docs/{link.removeprefix('../')})" in readme and clicks.strip() == "1", task
        section = pages.find(link.removeprefix("../").replace(".md", ""))[1]
        lines = as_text(section.text, width=80, color=False).splitlines()
        places = [n for n, text in enumerate(lines, 1) if command.strip().strip("`") in text]
        assert places[0] == int(line) <= 24, task
