"""The kit as data: frozen ids, judged rules, and a folder that a third party can use."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from kbproc.contract import always
from kbproc.contract.clients import rules_in
from kbproc.contract.judge import ACTIONS, judge, rules_of
from kbproc.contract.kit import KitError, kit_in
from tests.kit.judged import CONVERSATIONS, KIT, OURS
from tests.kit.patience import PATIENCE
from tests.kit.start import REPO

IDS = [row["id"] for row in KIT.requirements]


def test_ids_are_frozen() -> None:
    """An id may never be renamed or removed: reports name it for ever. New ones go into
    frozen.txt.
    """
    frozen = (Path(__file__).parent / "frozen.txt").read_text().split()
    assert set(frozen) - set(IDS) == set(), "renamed or removed"
    assert set(IDS) - set(frozen) == set(), "add these to frozen.txt"
    assert len(IDS) == len(set(IDS))


def test_every_requirement_says_where_docs_tell_more() -> None:
    for row in KIT.requirements:
        page, _, anchor = row["section"].partition("#")
        text = (REPO / "docs" / page).read_text()
        headings = [line.lstrip("# ") for line in text.splitlines() if line.startswith("#")]
        anchors = {re.sub(r"[^\w -]", "", one.lower()).replace(" ", "-") for one in headings}
        assert not anchor or anchor in anchors | set(re.findall(r'id="([^"]+)"', text)), row["id"]
        assert row["level"] in {"must", "should"} and row["says"].endswith(".")


def test_every_requirement_is_judged_and_no_other() -> None:
    servers = {rule for one in CONVERSATIONS.values() for rule in rules_of(one)}
    clients = {rule for one in KIT.conversations("clients") for rule in rules_in(one)}
    assert servers | clients | set(always.RULES) == set(IDS)


def test_conversations_have_names_and_known_steps() -> None:
    assert len(CONVERSATIONS) == len(KIT.conversations())
    for one in CONVERSATIONS.values():
        assert one["about"]
        assert [step for step in one["steps"] if not set(step) & set(ACTIONS)] == []


def test_an_exported_kit_judges_as_its_own(tmp_path: Path, kit_forked: None) -> None:
    folder = tmp_path / "kit"
    KIT.export(folder, {"kbproc": "0"})
    exported = kit_in(folder)
    assert exported.requirements == KIT.requirements
    assert json.loads((folder / "versions.json").read_text()) == {"kbproc": "0"}
    assert len(list((folder / "schemas" / "v1").iterdir())) == len(list(KIT.schemas.iterdir()))
    pages = {row["section"].partition("#")[0] for row in exported.requirements}
    assert [page for page in pages if not (folder / "docs" / page).is_file()] == []
    talk = next(one for one in exported.conversations() if one["name"] == "params")
    checks = judge(talk, OURS, exported, PATIENCE)
    assert {one.verdict for one in checks} == {"pass"}
    again = tmp_path / "again"
    exported.export(again, {})
    assert (again / "schemas" / "v1" / "error.json").is_file()
    assert (again / "docs" / "protocol.md").is_file()


def test_an_export_writes_over_nothing(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("")
    with pytest.raises(KitError, match="is there already"):
        KIT.export(tmp_path, {})
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
