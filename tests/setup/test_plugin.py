"""The plugin and its skill keep to their specifications."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml

from kbproc import __version__
from kbproc.base.clients import HOOKS
from tests.kit.start import REPO

PLUGIN = REPO / "plugin"
SKILLS = sorted((PLUGIN / "skills").iterdir())
# https://agentskills.io/specification
KNOWN = {"name", "description", "license", "compatibility", "metadata", "allowed-tools"}
# https://agent-plugins.org, 1.0.0
MEMBERS = {"$schema", "name", "version", "description", "author", "license", "keywords"}


def read(path: str) -> Any:
    return json.loads((REPO / path).read_text())


@pytest.mark.parametrize("folder", SKILLS, ids=lambda path: path.name)
def test_a_skill_keeps_to_the_specification(folder: Any) -> None:
    text = (folder / "SKILL.md").read_text()
    match = re.match(r"---\n(.*?)\n---\n", text, re.S)
    assert match
    head = yaml.safe_load(match[1])
    assert set(head) <= KNOWN and all(isinstance(value, str) for value in head.values())
    assert head["name"] == folder.name and re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", head["name"])
    assert 0 < len(head["description"]) <= 1024 and " when " in head["description"]
    assert len(head["compatibility"]) <= 500
    assert len(text.splitlines()) <= 500


def test_the_manifests_keep_to_the_specification() -> None:
    manifest, servers = read("plugin/plugin.json"), read("plugin/mcp.json")
    assert set(manifest) <= MEMBERS and manifest["version"] == __version__
    assert manifest["$schema"].endswith("/1.0.0/plugin.schema.json")
    assert set(servers) == {"$schema", "mcpServers"}
    assert servers["mcpServers"]["kbproc"] == {
        "type": "stdio",
        "command": "kbproc",
        "args": ["mcp"],
    }
    market = read(".claude-plugin/marketplace.json")
    (listed,) = market["plugins"]
    assert (REPO / listed["source"] / ".claude-plugin" / "plugin.json").is_file()
    hooks = read("plugin/hooks/hooks.json")["hooks"]
    assert list(hooks) == HOOKS["claude-code"].names


def test_the_map_of_the_docs_names_every_page() -> None:
    text = (REPO / "llms.txt").read_text()
    assert text.startswith("# kbproc\n\n> ")
    for path in (REPO / "docs").rglob("*.md"):
        assert f"({path.relative_to(REPO)})" in text
