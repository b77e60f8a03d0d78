"""The files by which indexes and programs find kbproc fit what these ask for.

The published schemas of server.json and of the plugin come with skillsaw, byte for byte, with its
rules for the manifests of Claude Code, Codex and Cursor, which publish no schema. Those of the
bundle, and Claude Code's own judge, are in packages of npm: tests/harnesses/test_manifests.py.
For llms-install.md, the formula and the flake no package that is installed here has a schema; the
layout of `npx skills add` is that of skills, which test_plugin.py reads.
"""

from __future__ import annotations

import configparser
import importlib.resources
import json
import re
import struct
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from kbproc import __version__
from tests.kit.start import REPO
from tools.generate.plugin import REGISTERED

MCPB = REPO / "packaging" / "mcpb"
# https://github.com/modelcontextprotocol/mcpb, manifest 0.4: other members are refused.
BUNDLE = {
    *("manifest_version", "name", "display_name", "version", "description", "author", "license"),
    *("keywords", "icon", "server", "tools", "compatibility", "user_config"),
}


def read(path: str) -> Any:
    return json.loads((REPO / path).read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("path", "schema"),
    [
        ("server.json", "mcp_registry/v2025_12_11/server.schema.json"),
        ("plugin/plugin.json", "agent_plugins/v1_0_0/plugin.schema.json"),
        ("plugin/mcp.json", "agent_plugins/v1_0_0/mcp.schema.json"),
    ],
)
def test_a_file_keeps_to_its_published_schema(path: str, schema: str) -> None:
    entry = read(path)
    text = importlib.resources.files("skillsaw.schemas").joinpath(schema).read_text()
    published = json.loads(text)
    assert published["$id"] == entry["$schema"]
    judge = jsonschema.validators.validator_for(published)(published)
    assert [error.message for error in judge.iter_errors(entry)] == []
    entry.pop("name", None), entry.pop("mcpServers", None)
    assert list(judge.iter_errors(entry)), "the schema asks for something"


def test_no_client_complains_of_the_plugin_and_the_marketplaces() -> None:
    command = [sys.executable, "-m", "skillsaw", "lint", "--format", "json", str(REPO)]
    report = json.loads(subprocess.run(command, capture_output=True, check=False).stdout)
    complaints = {(one["rule_id"], one["severity"]) for one in report["violations"]}
    budget = ("context-budget", "warning")  # the skill's length: so the plugin was read
    assert budget in complaints
    expected = {("claude-plugin-readme", "warning"), budget}
    assert {each for each in complaints if each[1] != "info"} <= expected


def test_the_registry_of_servers_can_take_the_entry() -> None:
    """The schema that it names, and the registry, have rules about names and lengths."""
    entry = read("server.json")
    assert re.fullmatch(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+", entry["name"])
    assert 1 <= len(entry["description"]) <= 100
    assert 1 <= len(entry["title"]) <= 100
    (package,) = entry["packages"]
    assert entry["version"] == package["version"] == __version__
    assert package["registryType"] == "pypi" and package["transport"] == {"type": "stdio"}
    assert all(each["type"] == "positional" for each in package["packageArguments"])
    readme = (REPO / "README.md").read_text(encoding="utf-8")
    assert f"<!-- mcp-name: {REGISTERED} -->" in readme and entry["name"] == REGISTERED


def test_a_desktop_program_can_open_the_bundle() -> None:
    manifest = read("packaging/mcpb/manifest.json")
    assert set(manifest) == BUNDLE and manifest["manifest_version"] == "0.4"
    server = manifest["server"]
    assert set(server) == {"type", "entry_point", "mcp_config"} and server["type"] == "uv"
    assert (MCPB / server["entry_point"]).is_file()
    assert set(server["mcp_config"]) == {"command", "args", "env"}
    assert all(set(tool) == {"name", "description"} for tool in manifest["tools"])
    assert set(manifest["compatibility"]["platforms"]) <= {"darwin", "win32", "linux"}
    for setting in manifest["user_config"].values():
        assert {"type", "title", "description"} <= set(setting)
    head = (MCPB / manifest["icon"]).read_bytes()[:24]
    assert head.startswith(b"\x89PNG") and struct.unpack(">II", head[16:]) == (512, 512)
    project = tomllib.loads((MCPB / "pyproject.toml").read_text())["project"]
    assert project["dependencies"] == [f"kbproc=={__version__}"]


def test_codex_and_cursor_find_the_plugin() -> None:
    for client, market in (
        (".codex-plugin", ".agents/plugins/marketplace.json"),
        (".cursor-plugin", ".cursor-plugin/marketplace.json"),
    ):
        (listed,) = read(market)["plugins"]
        source = listed["source"]
        folder = REPO / (source if isinstance(source, str) else source["path"])
        manifest = json.loads((folder / client / "plugin.json").read_text())
        assert manifest["version"] == __version__ and manifest["name"] == listed["name"]
        assert (folder / manifest["skills"]).is_dir() and (
            folder / manifest["mcpServers"]
        ).is_file()


def test_the_container_runs_as_nobody_in_particular() -> None:
    lines = (REPO / "Dockerfile").read_text().splitlines()
    last = lines[max(n for n, line in enumerate(lines) if line.startswith("FROM ")) :]
    words = [line.split()[0] for line in last if line[:1].isupper()]
    assert words.index("USER") < words.index("ENTRYPOINT") and "root" not in " ".join(last)
    assert {"VOLUME", "HEALTHCHECK"} <= set(words)
    assert all("-slim" in line for line in lines if line.startswith("FROM python"))


def test_the_service_starts_a_command_that_is_there() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(REPO / "packaging" / "systemd" / "kbproc-watch.service")
    assert "kbproc watch follow" in unit["Service"]["ExecStart"]
    assert unit["Install"]["WantedBy"] == "default.target"


def test_an_agent_that_installs_is_given_commands_that_are_there() -> None:
    text = (REPO / "llms-install.md").read_text(encoding="utf-8")
    words = re.findall(r"`kbproc ([a-z]+)", text)
    assert {"start", "doctor", "search", "mcp"} <= set(words)
    assert Path(REPO / "plugin" / "skills" / "kbproc" / "SKILL.md").is_file()
