"""The scripted conversations whose transcripts lie under golden/.

Each runs in a folder of its own that `make_files` fills, over real pipes and
in memory; both transcripts must be the golden one, byte for byte.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from tests.talk import Line

GUIDE = """---
title: Git Admin Guide
tags: [git, admin]
---
# Git Admin Guide

## Installation

To install the latest version of git from source, fetch the archive and run make.

## Backup

Mirror every repository each night with git clone --mirror.
"""
NOTES = "Setup notes\n\nFirst, add the PPA repository for the latest git, then install it.\n"
PAGE = "<html><head><title>Wiki</title></head><body><h1>Wiki</h1><p>Deploy on Friday.</p></body>"
CODE = 'def install(package):\n    """Install a package."""\n    return run("pip", package)\n'


class Conversation(NamedTuple):
    script: list[Line]
    options: dict[str, Any] = {}
    model: str = "hash"
    parked: tuple[int, ...] = ()
    in_memory: bool = True


def ask(id: int | str, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def make_files(folder: Path) -> None:
    docs = folder / "docs"
    docs.mkdir()
    (docs / "git-admin.md").write_text(GUIDE)
    (docs / "setup-notes.txt").write_text(NOTES)
    (docs / "wiki.html").write_text(PAGE)
    (docs / "install.py").write_text(CODE)
    (docs / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(64))
    broken = folder / "broken"
    broken.mkdir()
    (broken / "good.md").write_text("# Good\n\nThis one can be read.\n")
    (broken / "bad.pdf").write_bytes(b"%PDF-1.4\nnot really\n")


INGESTED = [ask(1, "doc.ingest", paths=["docs"]), ask(2, "doc.wait", timeout_ms=20_000)]

CONVERSATIONS: dict[str, Conversation] = {
    "search": Conversation(
        [
            *INGESTED,
            ask(3, "search", query="install git"),
            ask(4, "search", query="install git", mode="fts", limit=2, explain=True),
            ask(5, "search", query="deploy", mode="vector", limit=1),
            ask(6, "search", query='"latest version" -ppa', mode="fts"),
            ask(7, "search", query="install git", fusion="rrf", limit=2),
            ask(8, "search", query="zebra"),
            ask(9, "search", query="zebra", mode="fts"),
            ask(10, "search", query="install", tags=["Admin"], types=["markdown"]),
            ask(11, "search", query="install", min_score=0.9, fusion="rrf"),
        ]
    ),
    "ids": Conversation(
        [
            ask("a", "ping"),
            ask(-7, "ping"),
            '{"jsonrpc":"2.0","id":null,"method":"ping"}',
            '{"jsonrpc":"2.0","id":1.5,"method":"ping"}',
            '{"jsonrpc":"2.0","id":true,"method":"ping"}',
            '{"jsonrpc":"2.0","id":9223372036854775807,"method":"ping"}',
            '{"jsonrpc":"2.0","method":"ping"}',
            ask("last", "ping"),
        ]
    ),
}
