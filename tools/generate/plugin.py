"""Writes the manifests of the plugin and of the indexes that list servers, and llms.txt.

The plugin is a folder of the Agent Plugins Specification 1.0.0 (https://agent-plugins.org). Clients
read it by manifests of their own: Claude Code (https://code.claude.com/docs/en/plugins-reference),
Codex (https://developers.openai.com/codex/plugins/build) and Cursor
(https://cursor.com/docs/reference/plugins); OpenClaw reads all three. server.json is the entry of
the MCP registry (https://modelcontextprotocol.io/registry), packaging/mcpb the bundle that desktop
programs open (https://github.com/modelcontextprotocol/mcpb). llms.txt is the map of the docs for
language models: https://llmstxt.org.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from kbproc import __version__
from kbproc.base.clients import HOOKS, TOOL
from kbproc.methods.all import registry
from kbproc.surfaces.mcp import declared

_ABOUT = (
    "A local knowledge base for coding agents: documents, notes and knowledge entries, searched by "
    "words and by meaning, with citations."
)
_SCHEMAS = "https://agent-plugins.org/schemas/1.0.0"
_SERVER = {"type": "stdio", "command": "kbproc", "args": ["mcp"]}
_IDENTITY = {
    "name": "kbproc",
    "version": __version__,
    "description": _ABOUT,
    "author": {"name": "kbproc"},
    "license": "Apache-2.0",
    "keywords": ["knowledge base", "memory", "search", "notes", "mcp"],
}
_SECONDS = 5
_CURSOR_HOOKS = "hooks/hooks-cursor.json"
# The registry of servers compares it with the line mcp-name in the README of the package on PyPI.
REGISTERED = "io.github.kbproc/kbproc"
_SHORT = (
    "Documents, notes and past sessions for agents: searched by words and meaning, with citations."
)
_SERVER_SCHEMA = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
_PYTHON = ">=3.11"
_HIDDEN = re.compile(r"^(<!--.*?-->|<a id=.*?</a>)\s*", re.S)


def files(repo: Path) -> dict[str, str]:
    """Returns path → text."""
    listed = {"name": "kbproc", "source": "./plugin", "description": _ABOUT}
    documents: dict[str, Any] = {
        "plugin/plugin.json": {"$schema": f"{_SCHEMAS}/plugin.schema.json", **_IDENTITY},
        "plugin/mcp.json": {
            "$schema": f"{_SCHEMAS}/mcp.schema.json",
            "mcpServers": {"kbproc": _SERVER},
        },
        "plugin/.claude-plugin/plugin.json": {**_IDENTITY, "mcpServers": {"kbproc": _SERVER}},
        "plugin/hooks/hooks.json": {
            "description": "What the store knows.",
            "hooks": _hooks("claude-code"),
        },
        ".claude-plugin/marketplace.json": {
            "name": "kbproc",
            "owner": {"name": "kbproc"},
            "metadata": {"description": _ABOUT},
            "plugins": [listed],
        },
    }
    documents |= _of_other_clients(listed) | {
        "server.json": _registry_entry(),
        "packaging/mcpb/manifest.json": _bundle(),
    }
    texts = {path: json.dumps(value, indent=2) + "\n" for path, value in documents.items()}
    texts["packaging/mcpb/pyproject.toml"] = _BUNDLE_PROJECT
    return {**texts, "llms.txt": _llms(repo)}


def _hooks(client: str) -> dict[str, Any]:
    """Returns the hooks as they stand in a client's file."""
    hooks = HOOKS[client]
    return {
        name: [hooks.group(hooks.handler(f"kbproc hook {event}", _SECONDS), matcher)]
        for event in (*hooks.events, TOOL)
        for name, matcher in hooks.places(event).items()
    }


def _of_other_clients(listed: dict[str, str]) -> dict[str, Any]:
    """Returns the manifests by which Codex and Cursor read the plugin."""
    codex = {"name": "kbproc", "source": {"source": "local", "path": "./plugin"}}
    codex["policy"] = {"installation": "AVAILABLE", "authentication": "ON_INSTALL"}
    parts = {"skills": "./skills/", "mcpServers": "./mcp.json"}
    return {
        "plugin/.codex-plugin/plugin.json": {**_IDENTITY, **parts},
        ".agents/plugins/marketplace.json": {
            "name": "kbproc",
            "plugins": [{**codex, "category": "Productivity"}],
        },
        "plugin/.cursor-plugin/plugin.json": {
            **_IDENTITY,
            **parts,
            "hooks": f"./{_CURSOR_HOOKS}",  # else Cursor reads Claude Code's
        },
        f"plugin/{_CURSOR_HOOKS}": {**HOOKS["cursor"].first, "hooks": _hooks("cursor")},
        ".cursor-plugin/marketplace.json": {
            "name": "kbproc",
            "owner": {"name": "kbproc"},
            "metadata": {"description": _ABOUT},
            "plugins": [listed],
        },
    }


def _registry_entry() -> dict[str, Any]:
    package = {
        "registryType": "pypi",
        "identifier": "kbproc",
        "version": __version__,
        "runtimeHint": "uvx",
        "transport": {"type": "stdio"},
        "packageArguments": [{"type": "positional", "value": "mcp"}],
        "environmentVariables": [
            {"name": "KBPROC_STORE", "description": "Folder of the store.", "format": "filepath"}
        ],
    }
    return {
        "$schema": _SERVER_SCHEMA,
        "name": REGISTERED,
        "title": "kbproc",
        "description": _SHORT,
        "version": __version__,
        "packages": [package],
    }


# `uv` makes the environment of a bundle from this, so that the bundle carries no wheels.
_BUNDLE_PROJECT = f"""[project]
name = "kbproc-bundle"
version = "{__version__}"
requires-python = "{_PYTHON}"
dependencies = ["kbproc=={__version__}"]
"""


def _bundle() -> dict[str, Any]:
    """Returns the manifest of the bundle; its tools are those that a client lists by default."""
    tools = declared.tools(registry())
    entries = {entry["tool"]["name"]: entry["tool"] for entry in tools["tools"].values()}
    names = tools["sets"]["default"]
    return {
        "manifest_version": "0.4",
        "name": "kbproc",
        "display_name": "kbproc",
        "version": __version__,
        "description": _SHORT,
        "author": _IDENTITY["author"],
        "license": _IDENTITY["license"],
        "keywords": _IDENTITY["keywords"],
        "icon": "icon.png",
        "server": {
            "type": "uv",
            "entry_point": "server.py",
            "mcp_config": {
                "command": "uv",
                "args": ["run", "--directory", "${__dirname}", "server.py"],
                "env": {"KBPROC_STORE": "${user_config.store}"},
            },
        },
        "tools": [
            {"name": name, "description": entries[name]["description"].split("\n")[0]}
            for name in names
        ],
        "compatibility": {
            "platforms": ["darwin", "linux"],
            "runtimes": {"python": _PYTHON},
        },
        "user_config": {
            "store": {
                "type": "directory",
                "title": "Store",
                "description": "Folder that holds the knowledge base",
                "default": "${HOME}/.local/share/kbproc",
                "required": False,
            }
        },
    }


def _llms(repo: Path) -> str:
    """Returns the map of the docs: each page's title and its first sentence."""
    lines = ["# kbproc", "", f"> {_ABOUT}", "", "## Docs", ""]
    lines += [_line(repo, path) for path in sorted((repo / "docs").glob("*.md"))]
    lines += ["", "## For agents", ""]
    lines.append(_line(repo, repo / "plugin" / "skills" / "kbproc" / "SKILL.md"))
    lines += ["", "## Optional", ""]
    lines += [_line(repo, path) for path in sorted((repo / "docs" / "evidence").glob("*.md"))]
    return "\n".join(lines) + "\n"


def _line(repo: Path, path: Path) -> str:
    text = re.sub(r"\A---\n.*?\n---\n", "", path.read_text(encoding="utf-8"), flags=re.S)
    heading, _, rest = text[text.index("# ") :].partition("\n")
    title = heading.removeprefix("# ").strip()
    while (hidden := _HIDDEN.match(rest.lstrip())) is not None:
        rest = rest.lstrip()[hidden.end() :]
    sentence = _first_sentence(rest)
    about = f": {sentence}" if sentence else ""
    return f"- [{title}]({path.relative_to(repo)}){about}"


def _first_sentence(text: str) -> str:
    """Returns the first sentence of a page that begins with one, without its links."""
    paragraph = " ".join(text.strip().split("\n\n")[0].split())
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", paragraph)
    if not plain[:1].isalpha() and (not plain.startswith("`") or plain.startswith("```")):
        return ""
    return re.split(r"(?<=[.:])\s", plain)[0].rstrip(":")
