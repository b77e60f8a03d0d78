"""The kit as data: frozen ids, judged rules, and a folder that a third party can use."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from kbproc.contract import always
from kbproc.contract.clients import rules_in
from kbproc.contract.judge import ACTIONS, judge, rules_of
from kbproc.contract.kit import ABOUT_THE_KIT, KitError, kit_in
from tests.kit.judged import CONVERSATIONS, KIT, OURS, told_in
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
        assert row["level"] in {"must", "should", "may"} and row["says"].endswith(".")
        assert row["part"] in {*KIT.parts, "client"}


def test_every_requirement_is_judged_and_no_other() -> None:
    servers = {rule for one in CONVERSATIONS.values() for rule in rules_of(one)}
    clients = {rule for one in KIT.conversations("clients") for rule in rules_in(one)}
    unjudged = {row["id"] for row in KIT.requirements if "unjudged" in row}
    assert servers | clients | set(always.RULES) == set(IDS) - unjudged
    assert unjudged == {"kill.sync"}


def test_a_conversation_asks_for_the_methods_of_its_part() -> None:
    """So a profile needs no method that it does not name."""
    core = set(KIT.parts["core"]["methods"])
    methods_of: dict[str, set[str]] = {}
    for one in CONVERSATIONS.values():
        own = KIT.parts[one["part"]]["methods"]
        methods = {step["ask"] for step in one["steps"] if "ask" in step}
        methods |= {step["burst"] for step in one["steps"] if "burst" in step}
        assert methods <= core | set(own) | {"doc.lisst"}, one["name"]
        methods_of.setdefault(one["part"], set()).update(methods)
        rules = {KIT.rules[rule]["part"] for rule in rules_of(one)}
        assert rules <= {"core", one["part"]}, one["name"]
    lacking = {part: {*row["methods"]} - methods_of[part] for part, row in KIT.parts.items()}
    assert {part: methods for part, methods in lacking.items() if methods} == {
        "core": {"kb.list"}
    } or not any(lacking.values())


def test_the_page_tells_the_parts() -> None:
    with told_in("parts", [*KIT.parts], REPO / "docs" / "writing-a-server.md") as rows:
        for part, row in KIT.parts.items():
            methods = ", ".join(f"`{name}`" for name in row["methods"])
            rows[part] = f"| `{part}` | {row['about']} | {methods} |"


def test_the_page_tells_which_params_are_not_judged() -> None:
    steps = (step for one in CONVERSATIONS.values() for step in one["steps"])
    used = {name for step in steps for name in step.get("params", ())}
    page = REPO / "docs" / "writing-a-server.md"
    with told_in("unused params", [*KIT.parts], page) as rows:
        for part, row in KIT.parts.items():
            paths = [KIT.schemas / f"{name}.params.json" for name in row["methods"]]
            names = {name for path in paths for name in json.loads(path.read_text())["properties"]}
            rows[part] = f"| `{part}` | {', '.join(f'`{name}`' for name in sorted(names - used))} |"


def test_conversations_have_names_and_known_steps() -> None:
    assert len(CONVERSATIONS) == len(KIT.conversations())
    for one in CONVERSATIONS.values():
        assert one["about"]
        assert [step for step in one["steps"] if not set(step) & set(ACTIONS)] == []


def test_what_is_given_was_judged_before_in_the_same_conversation() -> None:
    """Otherwise the rule that presupposes it would be blamed for its breach."""
    for one in CONVERSATIONS.values():
        judged: set[str] = set()
        for step in one["steps"]:
            for judging in (step, *step.get("expect", ())):
                assert {judging.get("given")} <= {None, *judged}, (one["name"], judging)
                judged |= {judging["rule"]} if "rule" in judging else set()


def test_an_exported_kit_judges_as_its_own(tmp_path: Path, kit_forked: None) -> None:
    folder = tmp_path / "kit"
    KIT.export(folder, {"kbproc": "0"})
    exported = kit_in(folder)
    assert exported.requirements == KIT.requirements
    assert json.loads((folder / "versions.json").read_text()) == {"kbproc": "0"}
    assert len(list((folder / "schemas" / "v1").iterdir())) == len(list(KIT.schemas.iterdir()))
    pages = {row["section"].partition("#")[0] for row in exported.requirements}
    assert {path.name for path in (folder / "docs").iterdir()} == {*pages, *ABOUT_THE_KIT}
    assert (folder / "examples" / "server.py").is_file()
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
