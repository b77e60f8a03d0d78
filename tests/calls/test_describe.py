"""The answers of describe, and how much an agent has to read."""

from __future__ import annotations

import shlex
from pathlib import Path

import msgspec
import pytest

from kbproc.methods.all import registry
from kbproc.methods.calls import describe
from kbproc.methods.calls.method import Method
from kbproc.methods.calls.registry import ALIASES
from tests.kit.schemas import fit
from tests.kit.start import REPO
from tests.kit.talk import Session

REGISTRY = registry()
INDEX_BYTES = 11_264


def test_the_index_is_cheap_and_whole() -> None:
    index = describe.index(REGISTRY)
    assert len(msgspec.json.encode(index)) <= INDEX_BYTES
    page = (REPO / "docs" / "protocol.md").read_text(encoding="utf-8")
    assert f"an index of at most {INDEX_BYTES >> 10} KB;" in page
    assert [line["name"] for line in index["methods"]] == list(REGISTRY.methods)
    assert index["aliases"] == ALIASES
    for line in index["methods"]:
        method = REGISTRY.methods[line["name"]]
        assert (line["summary"], line["kind"]) == (method.summary, method.kind)
    required = {line["name"]: line.get("required") for line in index["methods"]}
    assert required["search"] == ["query"] and required["ping"] is None


def test_one_method_is_cheap_and_whole(subtests: pytest.Subtests) -> None:
    for method in REGISTRY.methods.values():
        with subtests.test(method.name):
            is_cheap_and_whole(method)


def is_cheap_and_whole(method: Method) -> None:
    description = describe.brief(method)
    assert len(msgspec.json.encode(description)) <= describe.BRIEF_BYTES
    assert set(method.params.__struct_fields__) <= set(description["params"])
    named = [name for names in description["errors"].values() for name in names]
    assert sorted(named) == sorted(method.all_errors)
    assert description["usage"].startswith(f"kbproc {method.name.replace('.', ' ')}")
    assert description["examples"]
    for example in description["examples"]:
        assert shlex.split(example["command"])[0] == "kbproc"
        assert example["params"] in [one.params for one in method.examples]
        assert {"what", "exit"} <= set(example)


def test_params_are_told_in_short() -> None:
    params = describe.brief(REGISTRY.methods["search"])["params"]
    assert params["query"].startswith("required string")
    assert params["limit"].startswith("integer 1..100 = 10")
    assert params["mode"].startswith("hybrid|fts|vector = hybrid")


@pytest.mark.parametrize("full", [False, True])
def test_what_is_told_is_as_its_schema_says(session: Session, full: bool) -> None:
    schema = session.data("schema", name="describe.result")
    for method in (None, *REGISTRY.methods):
        fit(session.ask("describe", method=method, full=full)["result"], schema)


def test_everything_is_told_in_full(tmp_path: Path) -> None:
    session = Session(tmp_path / "store", cwd=tmp_path, model="hash")
    full = session.data("describe", full=True)
    assert [one["name"] for one in full["methods"]] == list(REGISTRY.methods)
    one = session.data("describe", method="search", full=True)
    assert one in full["methods"] and {"safety", "flags", "result"} <= set(one)
    assert session.data("describe") == describe.index(REGISTRY)
    assert session.data("describe", method="search") == describe.brief(REGISTRY.methods["search"])
    session.close()
