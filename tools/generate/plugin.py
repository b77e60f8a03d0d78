"""Writes the manifests of the plugin, and llms.txt.

The plugin is a folder of the Agent Plugins Specification 1.0.0 (https://agent-plugins.org), which
Claude Code reads by its own manifest: https://code.claude.com/docs/en/plugins-reference. llms.txt
is the map of the docs for language models: https://llmstxt.org.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from kbproc import __version__
from kbproc.base.clients import HOOKS, TOOL

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
_HIDDEN = re.compile(r"^(<!--.*?-->|<a id=.*?</a>)\s*", re.S)


def files(repo: Path) -> dict[str, str]:
    """Returns path → text."""
    claude = HOOKS["claude-code"]
    hooks = {
        name: [claude.group(claude.handler(f"kbproc hook {event}", _SECONDS), matcher)]
        for event in (*claude.events, TOOL)
        for name, matcher in claude.places(event).items()
    }
    listed = {"name": "kbproc", "source": "./plugin", "description": _ABOUT}
    documents: dict[str, Any] = {
        "plugin/plugin.json": {"$schema": f"{_SCHEMAS}/plugin.schema.json", **_IDENTITY},
        "plugin/mcp.json": {
            "$schema": f"{_SCHEMAS}/mcp.schema.json",
            "mcpServers": {"kbproc": _SERVER},
        },
        "plugin/.claude-plugin/plugin.json": {**_IDENTITY, "mcpServers": {"kbproc": _SERVER}},
        "plugin/hooks/hooks.json": {"description": "What the store knows.", "hooks": hooks},
        ".claude-plugin/marketplace.json": {
            "name": "kbproc",
            "owner": {"name": "kbproc"},
            "metadata": {"description": _ABOUT},
            "plugins": [listed],
        },
    }
    texts = {path: json.dumps(value, indent=2) + "\n" for path, value in documents.items()}
    return {**texts, "llms.txt": _llms(repo)}


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
