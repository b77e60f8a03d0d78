"""The docs name the clients of the table, and the files and variables of each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath

from kbproc.base.clients import BY_NAME, HOOKS, LOGS, SERVERS, SKILLS
from tests.kit.start import REPO

CODE = re.compile(r"`([^`\n]+)`")


def rows(page: str, heading: str) -> list[list[str]]:
    """Returns the cells of the table with this heading, a list each row."""
    _, _, rest = (REPO / "docs" / page).read_text().partition(f"{heading}\n")
    lines = rest.partition("\n\n")[0].splitlines()[1:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def named(page: str, before: str, after: str) -> Iterator[str]:
    """Yields the names in backticks between two texts of a page."""
    text = (REPO / "docs" / page).read_text().partition(before)[2].partition(after)[0]
    assert text
    yield from CODE.findall(text)


def test_mcp() -> None:
    table = rows("mcp.md", "| client | settings | then |")
    assert [first.strip("`") for first, *_ in table] == list(SERVERS)
    for first, settings, then in table:
        name = first.strip("`")
        client, servers = BY_NAME[name], SERVERS[name]
        folder = None if servers.is_project else client.folder.strip("~")
        for part in (servers.file, servers.other, folder):
            assert PurePath(part or "").name in settings
        for variable in (servers.variable, None if servers.is_project else client.variable):
            assert not variable or f"`{variable}`" in settings
        assert ("in the project" in settings) == servers.is_project
        assert bool(then) == bool(servers.next_step)


def test_hooks_and_skills() -> None:
    assert list(named("hooks.md", "\nClients: ", ". ")) == list(HOOKS)
    assert list(named("hooks.md", "or to the folder of ", ". ")) == list(SKILLS)


def test_chats() -> None:
    table = {row[0]: row[1:] for row in rows("chats.md", "| client | place | by |")}
    for name, client in LOGS.items():
        place, by = table[client.title]
        assert by == f"`chats add {name}`"
        assert PurePath(client.logs[0]).name in place
        assert client.variable is None or f"`{client.variable}`" in place
