"""The check of an agent names what is missing, used up, or not as the log says."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kbproc.base.errors import Finding
from kbproc.engine.projections.catalog.rows import AgentRow
from kbproc.knowledge.agents.check import examine
from tests.kit.knowledge import sha256

SCOPES = ("doc:read", "note:read")


def agent(slug: str = "gull", **more: Any) -> AgentRow:
    facts: dict[str, Any] = dict.fromkeys(AgentRow.__struct_fields__)
    return AgentRow(**{**facts, "slug": slug, "quotas": "{}", **more})


class Shop:
    """A store in a folder, and a catalog with these knowledge bases, agents and notes."""

    def __init__(self, folder: Path) -> None:
        self.store: Any = SimpleNamespace(origin=folder)
        self.notes_folder = folder / "notes" / "gull"
        self.notes_folder.mkdir(parents=True)
        self.agents: list[AgentRow] = []
        self.notes: dict[str, str] = {}

    def findings(
        self,
        row: AgentRow,
        counts: dict[str, int] | None = None,
        *,
        notes: bool = True,
        alone: bool = False,
    ) -> dict[str, Finding]:
        rows = [
            SimpleNamespace(source_id=slug, sha256=sha256(text))
            for slug, text in self.notes.items()
        ]
        queries: Any = SimpleNamespace(
            kb_slugs=lambda: ["birds", "lakes"],
            agents=lambda: self.agents,
            notes=lambda slug: rows,
        )
        findings = examine(
            self.store, queries, row, scopes=SCOPES, used=counts or {}, notes=notes, alone=alone
        )
        return {finding.name: finding for finding in findings}


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path.resolve())


def test_an_agent_without_limits_passes(shop: Shop) -> None:
    findings = shop.findings(agent())
    assert {name: (one.status, one.message) for name, one in findings.items()} == {
        "knowledge bases": ("pass", "all (2)"),
        "scopes": ("pass", "everything that its process may see"),
        "notes folder": ("pass", str(shop.notes_folder)),
        "notes": ("pass", "0 notes match their files"),
    }


@pytest.mark.parametrize(
    ("sides", "name", "status", "message"),
    [
        ({"kbs": ["birds"]}, "knowledge bases", "pass", "birds"),
        ({"kbs": []}, "knowledge bases", "pass", "none: it sees its notes only"),
        ({"kbs": ["birds", "x", "y"]}, "knowledge bases", "warn", "missing: x, y"),
        ({"scopes": ["doc:read"]}, "scopes", "pass", "doc:read"),
        ({"scopes": []}, "scopes", "warn", "none: it may do nothing"),
        ({"scopes": ["fly", "doc:read"]}, "scopes", "warn", "unknown to this version: fly"),
    ],
)
def test_knowledge_bases_and_scopes_must_exist(
    shop: Shop, sides: dict[str, Any], name: str, status: str, message: str
) -> None:
    finding = shop.findings(agent(**sides))[name]
    assert (finding.status, finding.message) == (status, message)
    assert (finding.hint is None) == (status == "pass")


def test_at_most_ten_names_are_listed(shop: Shop) -> None:
    missing = [f"kb-{number:02d}" for number in range(12)]
    message = shop.findings(agent(kbs=missing))["knowledge bases"].message
    assert message == f"missing: {', '.join(missing[:10])} and 2 more"
    message = shop.findings(agent(kbs=missing[:10]))["knowledge bases"].message
    assert message == f"missing: {', '.join(missing[:10])}"


@pytest.mark.parametrize(
    ("count", "status", "message"),
    [
        (8, "pass", "8 of 10 used"),
        (9, "warn", "9 of 10 used: nearly full"),
        (10, "warn", "10 of 10 used: full"),
        (11, "warn", "11 of 10 used: over the quota"),
    ],
)
def test_a_quota_is_nearly_full_from_nine_tenths_on(
    shop: Shop, count: int, status: str, message: str
) -> None:
    row = agent(quotas='{"notes_stored": 10, "knowledge_stored": 1}')
    findings = shop.findings(row, {"notes_stored": count})
    assert "knowledge_stored" not in findings, "its count is hidden from the caller"
    assert (findings["notes_stored"].status, findings["notes_stored"].message) == (status, message)


def test_a_folder_must_be_there_and_the_agents_own(shop: Shop, tmp_path: Path) -> None:
    other = agent("heron", folder=str(shop.notes_folder))
    shop.agents = [agent(), other]
    finding = shop.findings(agent())["notes folder"]
    assert (finding.status, finding.message) == (
        "fail",
        f"{shop.notes_folder} is also the notes folder of heron",
    )
    assert shop.findings(agent(), alone=True)["notes folder"].status == "pass"
    nowhere = tmp_path.resolve() / "nowhere"
    findings = shop.findings(agent(folder=str(nowhere)))
    assert findings["notes folder"].message == f"{nowhere} does not exist"
    assert findings["notes"].status == "warn"
    file = tmp_path.resolve() / "file"
    file.touch()
    assert shop.findings(agent(folder=str(file)))["notes folder"].message == f"{file} is no folder"
    link = tmp_path.resolve() / "link"
    link.symlink_to(shop.notes_folder)
    shop.agents = []
    assert shop.findings(agent(folder=str(link)))["notes folder"].message == (
        f"{link} leads to {shop.notes_folder}, and no symlink is followed"
    )


def test_files_are_compared_with_the_notes_of_the_log(shop: Shop) -> None:
    shop.notes = {"same": "# Same\n", "edited": "# Before\n", "missing": "# Gone\n"}
    for slug, text in (("same", "# Same\n"), ("edited", "# After\n"), ("fresh", "# New\n")):
        (shop.notes_folder / f"{slug}.md").write_text(text)
    finding = shop.findings(agent())["notes"]
    assert (finding.status, finding.message, finding.hint) == (
        "warn",
        "new: fresh; changed: edited; gone: missing",
        "Run note.sync.",
    )
    assert "notes" not in shop.findings(agent(), notes=False)


def test_a_file_that_is_no_note_is_named_with_the_reason(shop: Shop) -> None:
    shop.notes = {"same": "# Same\n"}
    (shop.notes_folder / "same.md").write_text("# Same\n")
    (shop.notes_folder / "other.md").symlink_to("same.md")
    findings = shop.findings(agent())
    assert findings["notes"].message == "1 note matches its file"
    skipped = findings["skipped files"]
    assert skipped.status == "warn" and "other.md" in skipped.message
    assert skipped.hint == "The text of skipped files is in no note."
