"""`python -m bench.naming`: how often a hook shows what a prompt names, and nothing else.

Four sets of entries and prompts, written for this purpose: near names, aliases, slips, parts of
names, what a text excludes, entries that were superseded, knowledge bases apart, prompts between
other topics, and prompts about nothing in the store. Each prompt goes through `kbproc hook prompt`,
beside an owner (words and meaning) and alone (words). A case is right if the hook shows exactly the
entries that it expects, at each of its turns. Every third case is held aside: the rules were made
for the others.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.measure import KBPROC, Child, aligned, environment, serve

HERE = Path(__file__).parent
SETS = ("shop", "lab", "home", "app")
_SHOWN = re.compile(r"^\[.*\] entry (\d+)", re.MULTILINE)
_PATIENT = ("--deadline-ms", "60000")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.naming", description=__doc__)
    parser.add_argument("--part", choices=("fit", "held"), default="fit")
    parser.add_argument("--modes", default="words,hybrid")
    parser.add_argument("--in-bodies", action="store_true", help="aliases stand in the texts")
    parser.add_argument("--show", action="store_true", help="name the cases that are wrong")
    options = parser.parse_args()
    rows = [["mode", "kind", "right", "of"]]
    for mode in options.modes.split(","):
        right, total = Counter[str](), Counter[str]()
        for kind, is_right, line in _judged(options.part, mode, in_bodies=options.in_bodies):
            total.update([kind, "all"])
            right.update([kind, "all"] if is_right else [])
            if options.show and not is_right:
                sys.stdout.write(f"{mode} {kind}: {line}\n")
        rows += [[mode, kind, str(right[kind]), str(total[kind])] for kind in total]
    sys.stdout.write(aligned(rows))
    return 0


def _judged(part: str, mode: str, *, in_bodies: bool) -> Iterator[tuple[str, bool, str]]:
    """Yields the kind of each case, whether it is right, and what was shown in place of what."""
    number = 0
    for name in SETS:
        data = json.loads((HERE / f"{name}.json").read_text(encoding="utf-8"))
        with contextlib.ExitStack() as stack:
            prefix = "kbproc-naming-"
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix=prefix))
            store = Path(folder) / "store"
            owners = stack.enter_context(contextlib.ExitStack())
            owner = owners.enter_context(serve(store))
            names = _filled(owner, data["entries"], in_bodies=in_bodies)
            if mode == "words":
                owners.close()
            for case in data["cases"]:
                number += 1
                if (number % 3 == 0) == (part == "held"):
                    kb = case.get("kb", data["entries"][0]["kb"])
                    yield _judgement(store, names, case, kb, str(number))


def _filled(owner: Child, entries: list[dict[str, Any]], *, in_bodies: bool) -> dict[int, str]:
    """Stores the entries; returns id in the store → id in the set, once all have vectors."""
    ids: dict[str, int] = {}
    for kb in {entry["kb"] for entry in entries}:
        _ask(owner, "kb.create", slug=kb, name=kb)
    for entry in entries:
        body, aliases = entry["body"], entry["aliases"]
        named = {} if in_bodies else {"aliases": aliases}
        body = f"{body} Also called: {', '.join(aliases)}." if in_bodies and aliases else body
        members = {"kb": entry["kb"], "title": entry["title"], "body": body, **named}
        ids[entry["id"]] = _ask(owner, "knowledge.store", **members)["id"]
    for entry in entries:
        if successor := entry.get("superseded_by"):
            link = {"old_id": ids[entry["id"]], "new_id": ids[successor]}
            _ask(owner, "knowledge.supersede", **link)
    _ask(owner, "doc.wait")
    return {id: name for name, id in ids.items()}


def _ask(owner: Child, method: str, **params: object) -> Any:
    return owner.result(method, **params)["data"]


def _judgement(
    store: Path, names: dict[int, str], case: dict[str, Any], kb: str, session: str
) -> tuple[str, bool, str]:
    is_right, lines = True, []
    for turn in case.get("turns", [case]):
        names_shown = [names[id] for id in _shown(store, kb, turn["prompt"], session)]
        if set(names_shown) != set(turn["expect"]):
            is_right = False
            lines.append(
                f"{turn['prompt']} | {', '.join(names_shown)} | {', '.join(turn['expect'])}"
            )
    return case["kind"], is_right, "; ".join(lines)


def _shown(store: Path, kb: str, prompt: str, session: str) -> list[int]:
    """Returns the ids of the entries that a hook shows for a prompt, each once."""
    event = json.dumps({"prompt": prompt, "cwd": str(store.parent), "session_id": session})
    command = [*KBPROC, "hook", "prompt", "--store", str(store), "--kb", kb, *_PATIENT]
    done = subprocess.run(
        command, input=event, capture_output=True, text=True, check=True, env=environment()
    )
    output = json.loads(done.stdout)["hookSpecificOutput"] if done.stdout.strip() else {}
    places = _SHOWN.findall(output.get("additionalContext", ""))
    return list(map(int, dict.fromkeys(places)))


if __name__ == "__main__":
    sys.exit(main())
