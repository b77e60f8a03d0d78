"""TOML is changed in one table; every other line and value stays."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kbproc.base.settings.toml import plain_table
from kbproc.base.toml_edit import append, change, drop, key, parse, value

PATH = ("mcp_servers", "kbproc")
ENTRY = {"command": "kbproc", "args": ["mcp", "--store", 'a "b" \\ \x7f\n']}
NAMES = st.text(min_size=1, max_size=8)
VALUES = st.recursive(
    st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
# Lines of a file that is read without tomllib, and lines that need it or are no TOML.
PLAIN = ["format = 2", "", "[model]", 'kind = "none"', "on = true", "[llm]", 'c-_1 = "ü b"']
ODD = ["format = 02", "a = 1_0", 'b = "\\n"', "[a.b]", "[[a]]", "# c", "x=1", "d = []", "[llm"]
ODD += ['e = "a" b"', "²= 1"]
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
    with_table = change(text, PATH, ENTRY)
    after = tomllib.loads(with_table)
    assert after["mcp_servers"].pop("kbproc") == ENTRY
    assert after == {**before, "mcp_servers": before.get("mcp_servers", {})}
    assert with_table.startswith(text)
    assert change(with_table, PATH, ENTRY) == with_table
    assert drop(with_table, PATH).rstrip() == text.rstrip()
    with pytest.raises(ValueError, match="there is no kbproc"):
        drop(text, PATH)


def test_members_that_have_their_value_stay_as_they_are_written() -> None:
    text = (
        '[mcp_servers.kbproc]\ncommand = "old"\nenabled = true # mine\nenv.A = "1"\n\n[x]\na = 1\n'
    )
    same = {"enabled": True, "env": {"A": "1"}}
    changed = change(text, PATH, {"command": "new", **same})
    assert changed == text.replace('"old"', '"new"')
    fewer = change(changed, PATH, {"args": ["a"], "enabled": True})
    assert parse(fewer)["mcp_servers"]["kbproc"] == {"args": ["a"], "enabled": True}
    assert "enabled = true # mine\n\n[x]\na = 1\n" in fewer
    text = f"{text}[mcp_servers.kbproc.more] # mine\nb = 1\n"
    assert change(text, PATH, {"command": "old", **same, "more": {"b": 1}}) == text


def test_tables_of_an_array_are_appended_and_dropped_by_their_number() -> None:
    """A dropped table takes the comments between its lines, and its blank line, with it."""
    text = "a = 1\n\n[[x.y]]\nn = 0\n[[x.y.z]]\nm = 0\n[[x.y.z]]\nm = 1\n# next\n[b]\nc = 1\n"
    one = append(text, ("x", "y"), {"n": 1, "z": [{"m": 2}, {"m": 3}]})
    assert one == f"{text}\n[[x.y]]\nn = 1\n[[x.y.z]]\nm = 2\n[[x.y.z]]\nm = 3\n"
    assert drop(one, ("x", "y", 1)) == text
    assert drop(one, ("x", "y", 0, "z", 1)) == one.replace("[[x.y.z]]\nm = 1\n", "")
    assert drop(one, ("x", "y", 1, "z", 0)) == one.replace("[[x.y.z]]\nm = 2\n", "")
    assert drop(one, ("x",)) == "a = 1\n# next\n[b]\nc = 1\n"
    commented = text.replace("n = 0\n", "n = 0\n\n# of z\n")
    assert drop(commented, ("x", "y", 0)) == "a = 1\n# next\n[b]\nc = 1\n"


def test_a_value_in_one_member_with_others_is_refused() -> None:
    for text, path in (
        ("x = { y = 1, z = 2 }\n", ("x", "y")),
        ("x = [{ y = 1 }, { y = 2 }]\n", ("x", 0)),
    ):
        with pytest.raises(ValueError, match="others stand in one member with"):
            drop(text, path)
    with pytest.raises(ValueError):
        append("x = [{ y = 1 }, { y = 2 }]\n", ("x",), {"y": 3})
    with pytest.raises(ValueError):
        change("x = { y = {}, z = 2 }\n", ("x", "y"), {"a": 1})


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
        change(text, PATH, ENTRY)


@pytest.mark.parametrize("text, gap", [("", ""), ("a = 1", "\n\n"), ("a = 1\n", "\n")])
def test_a_new_table_stands_after_a_blank_line(text: str, gap: str) -> None:
    assert change(text, ("t",), {"b": 1}) == f"{text}{gap}[t]\nb = 1\n"


@given(lines=st.lists(st.sampled_from(PLAIN + ODD), max_size=6), end=st.sampled_from(["", "\n"]))
def test_a_plain_table_is_read_as_tomllib_reads_it(lines: list[str], end: str) -> None:
    text = "\n".join(lines) + end
    table = plain_table(text)
    assert table is None or table == tomllib.loads(text)


def test_a_file_as_kbproc_writes_it_is_plain() -> None:
    assert plain_table("\n".join(PLAIN)) == tomllib.loads("\n".join(PLAIN))
