"""TOML is changed in one table; every other line and value stays."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kbproc.surfaces.mcp.setup.toml import drop, key, put, value

PATH = ("mcp_servers", "kbproc")
ENTRY = {"command": "kbproc", "args": ["mcp", "--store", 'a "b" \\ \x7f\n']}
NAMES = st.text(min_size=1, max_size=8)
VALUES = st.recursive(
    st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
# Parts of a file of settings, in any order; each names tables of its own.
PARTS = [
    "# settings\n",
    "\n",
    "[other]\nlist = [\n  1, # one\n  2,\n]\n",
    '[mcp_servers.second]\ncommand = "x"\n',
    '[mcp_servers."third one".env]\nA = """\n[mcp_servers.kbproc]\n"""\n',
    "[[array]]\nn = 1\n[[array]]\nn = 2\n",
]


@given(member=VALUES, name=NAMES)
@example(member=[{"a": 1}], name="a b")
@example(member=1, name="a\x7f")
def test_a_value_is_read_back_as_it_was(member: Any, name: str) -> None:
    line = f"{key(name)} = {value(member)}"
    assert tomllib.loads(line) == {name: member}


@given(parts=st.lists(st.sampled_from(PARTS), unique=True), crlf=st.booleans())
def test_a_table_is_put_and_dropped_and_nothing_else_changes(parts: list[str], crlf: bool) -> None:
    text = "".join(parts)
    text = text.replace("\n", "\r\n") if crlf else text
    before = tomllib.loads(text)
    with_table = put(text, PATH, ENTRY, list(ENTRY))
    after = tomllib.loads(with_table)
    assert after["mcp_servers"].pop("kbproc") == ENTRY
    assert after == {**before, "mcp_servers": before.get("mcp_servers", {})}
    assert with_table.startswith(text)
    assert put(with_table, PATH, ENTRY, list(ENTRY)) == with_table
    assert drop(with_table, PATH).rstrip() == text.rstrip()
    assert drop(text, PATH) == text


def test_members_that_the_user_added_stay_and_owned_ones_change() -> None:
    text = (
        '[mcp_servers.kbproc]\ncommand = "old"\nenabled = true # mine\nenv.A = "1"\n\n[x]\na = 1\n'
    )
    changed = put(text, PATH, {"command": "new"}, ["command", "args"])
    assert changed == text.replace('"old"', '"new"')
    dropped = put(changed, PATH, {"args": ["a"]}, ["command", "args", "env"])
    assert tomllib.loads(dropped)["mcp_servers"]["kbproc"] == {"args": ["a"], "enabled": True}


def test_a_dropped_table_takes_its_tables_with_it() -> None:
    text = (
        "a = 1\n\n[mcp_servers.kbproc]\nb = 1\n[mcp_servers.kbproc.env]\nc = 1\n[mcp_servers.kb]\n"
    )
    assert drop(text, PATH) == "a = 1\n[mcp_servers.kb]\n"
    assert drop('mcp_servers.kbproc.command = "x"\nmcp_servers.kb.a = 1\n', PATH) == (
        "mcp_servers.kb.a = 1\n"
    )


@pytest.mark.parametrize("text", ["a = [1,\n", "just words\n", "[unclosed\n"])
def test_a_broken_file_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        put(text, PATH, ENTRY, list(ENTRY))


@pytest.mark.parametrize("text, gap", [("", ""), ("a = 1", "\n\n"), ("a = 1\n", "\n")])
def test_a_new_table_stands_after_a_blank_line(text: str, gap: str) -> None:
    assert put(text, ("t",), {"b": 1}, []) == f"{text}{gap}[t]\nb = 1\n"
