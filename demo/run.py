"""Ingests a folder with a file of each format and searches it, three ways.

What it prints is what a harness sees over `kbproc serve`, and what a person
sees from `kbproc call` and the commands.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from client import Client
from documents import make_docx, make_pdf

HERE = Path(__file__).parent
REPO = HERE.parent
WORK = REPO / ".demo"
KBPROC = str(Path(sys.executable).with_name("kbproc"))
QUERIES = ("why does my webhook not arrive", "red lamp on the coffee machine", "浅草寺")


def main() -> int:
    files, store = prepare()
    os.environ["KBPROC_STORE"] = str(store)
    say("Searching by meaning takes a model, once on a machine")
    shell("model", "install", "--format", "text")
    over_stdio(files)
    from_the_shell()
    print(f'\nAll of it lies in {WORK.relative_to(REPO)}/. Try: {KBPROC_HINT} search "backup"')
    return 0


KBPROC_HINT = "KBPROC_STORE=.demo/store .venv/bin/kbproc"


def prepare() -> tuple[Path, Path]:
    shutil.rmtree(WORK, ignore_errors=True)
    files, store = WORK / "files", WORK / "store"
    shutil.copytree(HERE / "files", files)
    make_pdf(files / "coffee-machine.pdf")
    make_docx(files / "onboarding.docx")
    say(
        f"A folder with a file of each format: {', '.join(sorted(p.name for p in files.iterdir()))}"
    )
    return files, store


def over_stdio(files: Path) -> None:
    say("1. A harness spawns `kbproc serve` and speaks JSON-RPC over stdin and stdout")
    started = time.perf_counter()
    kb = Client([KBPROC, "serve"], cwd=files)
    print(f"   ping: {kb.ask('ping')}")
    print(f"   first answer after {time.perf_counter() - started:.2f} s")
    added = kb.ask("doc.ingest", show_progress, paths=["."])
    print(f"   ingested {added['added']} files, {added['chunks']} chunks")
    if added["added"] != len(list(files.iterdir())):
        sys.exit(f"not every file was read: {added}")
    print("   embedding…")
    started = time.perf_counter()
    kb.ask("doc.wait", timeout_ms=300_000)
    print(f"   every chunk has its vector after {time.perf_counter() - started:.1f} s")
    for mode in ("fts", "vector", "hybrid"):
        print(f"\n   mode {mode}")
        for query in QUERIES:
            started = time.perf_counter()
            answer = kb.ask("search", query=query, mode=mode, limit=1)
            show_hit(query, answer, (time.perf_counter() - started) * 1000)
    again = kb.ask("doc.ingest", paths=["."])
    print(f"\n   ingested again: {again['unchanged']} unchanged, nothing to do")
    print(f"   the coprocess ends with exit code {kb.close()}")


def show_progress(event: dict[str, Any]) -> None:
    if event["type"] == "progress":
        print(f"   {event['stage']}: {event['current']}/{event['total']} {event['message']}")


def show_hit(query: str, answer: dict[str, Any], took_ms: float) -> None:
    hits = answer["results"]
    best = f"{hits[0]['score']:.3f}  {hits[0]['source']['title']}" if hits else "nothing"
    print(f"   {query:32} → {best}  ({took_ms:.1f} ms)")


def from_the_shell() -> None:
    say("2. The same store from the shell")
    shell(
        "call",
        "search",
        "query=how long does a restore take",
        "limit=1",
        "--format",
        "json",
        "--jq",
        ".data.results[0] | {score, title: .source.title}",
    )
    shell("search", "first class train", "--limit", "2", "--format", "text")
    shell("status", "--format", "text")


def shell(*arguments: str) -> None:
    quoted = " ".join(f'"{a}"' if " " in a else a for a in arguments)
    print(f"\n$ kbproc {quoted}", flush=True)
    subprocess.run([KBPROC, *arguments], check=True)


def say(title: str) -> None:
    print(f"\n{title}\n", flush=True)


if __name__ == "__main__":
    sys.exit(main())
