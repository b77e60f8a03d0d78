"""`python -m bench.acts [--each N]`: what hooks say before edits and commands, and after errors.

The project is made up: a third of its modules, commands and errors have an entry or a page that
names them and says what to do. Each act is sent to `kbproc hook tool` as a client sends it, in a
session of its own, beside a process that has the store open. A row counts the acts that got a
text, those whose text is the one that was written for the act, and what it cost.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from bench.measure import KBPROC, aligned, answer, environment, request, serve
from kbproc.base.budget import BYTES_PER_TOKEN, byte_size

_MODULES = 120
_THIRD = 3
_AREAS = ("billing", "shipping", "catalog", "search", "login", "stock", "tax", "mail")
_THINGS = ("rates", "orders", "labels", "coupons", "parcels", "invoices", "quotas", "ledgers")
_VERBS = ("round", "merge", "print", "check", "split", "count", "export", "replay")
_KINDS = ("ValueError", "KeyError", "RuntimeError", "TimeoutError")
_PATIENT = ("--deadline-ms", "60000")


class Fact(NamedTuple):
    """An act, and a title and a text that say what holds for it; `mark` stands in that text only.

    `near`: an act that looks like it and is another one. `is_stored`: the store has the text.
    """

    act: dict[str, Any]
    near: dict[str, Any]
    title: str
    text: str
    mark: str
    is_stored: bool


class Answered(NamedTuple):
    context: str
    seconds: float
    processor_seconds: float


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.acts")
    parser.add_argument("--each", type=int, default=30, help="acts of each kind")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        store = Path(scratch) / "store"
        facts = list(_facts(random.Random(66)))
        with serve(store) as owner:
            _fill(lambda line: answer(owner.ask(line)), facts)
            rows = list(_rows(store, facts, options.each))
    sys.stdout.write(aligned(rows) + "\n")
    return 0


def _facts(chance: random.Random) -> Iterator[Fact]:
    for number in range(_MODULES):
        area, thing = chance.choice(_AREAS), chance.choice(_THINGS)
        other, verb = chance.choice(_THINGS), chance.choice(_VERBS)
        mark, is_stored = f"mark{number:04}", number % _THIRD == 0
        path = f"{area}/{thing}_{number}.py"
        yield Fact(
            _edit(path),
            _edit(f"{area}/{thing}_{number}_test.py"),
            f"How {thing} are kept",
            f"{path} keeps {thing} sorted; whoever changes it runs {mark} first.",
            mark,
            is_stored,
        )
        tool = f"{area[:4]}ctl{number}"
        yield Fact(
            {"command": f"{tool} {verb} {thing}.csv"},
            {"command": f"{tool}x {verb} {thing}.csv"},
            f"On {verb} and {thing}",
            f"`{tool} {verb}` locks the table of {thing}: announce it with {mark}c.",
            f"{mark}c",
            is_stored,
        )
        kind = chance.choice(_KINDS)
        sentence = f"no {thing} of {area} to {verb} before {other} {number % 7} times a day"
        yield Fact(
            _failure(f"{kind}: {sentence}: '/tmp/{number}' at 0x{number:x}f"),
            _failure(f"{kind}: {thing} have no {area}, {verb} of {other} came too late"),
            f"Talk {number}",
            f"User: it stops with {kind}: {sentence}: '/srv/a' at 0xff.\nThe answer was {mark}e.",
            f"{mark}e",
            is_stored,
        )


def _edit(path: str) -> dict[str, Any]:
    return {"file_path": path, "old_string": "a = 1", "new_string": "a = 2"}


def _failure(line: str) -> dict[str, Any]:
    return {"error": f"Exit code 1\nTraceback (most recent call last):\n  File 'x'\n{line}\n"}


def _fill(ask: Callable[[bytes], Any], facts: list[Fact]) -> None:
    """Stores every second text as an entry and the others as pages, among texts of no act."""
    for number, fact in enumerate(facts):
        if not fact.is_stored:
            words = fact.title.split()
            ask(_page(f"{fact.title} {number}", f"{' '.join(words)} is a matter of taste."))
        elif number % 2:
            ask(request("knowledge.store", title=f"{fact.title} ({number})", body=fact.text))
        else:
            ask(_page(f"{fact.title} ({number})", fact.text))


def _page(title: str, text: str) -> bytes:
    return request("doc.create", title=title, text=text, type="markdown")


def _rows(store: Path, facts: list[Fact], each: int) -> Iterator[list[str]]:
    yield [
        *("acts", "sent", "got a text", "the right one", "tokens", "of them citation"),
        *("p50", "p90", "processor p50"),
    ]
    stored = [fact for fact in facts if fact.is_stored][: each * 2]
    others = [fact for fact in facts if not fact.is_stored][: each * 2]
    looks: list[dict[str, Any]] = [{"command": f"cat notes/{n}.md | head -3"} for n in range(each)]
    yield _row(store, "that a text names", [(fact.act, fact.mark) for fact in stored])
    yield _row(store, "near to one", [(fact.near, "") for fact in stored])
    yield _row(store, "that no text names", [(fact.act, "") for fact in others])
    yield _row(store, "that only look", [(act, "") for act in looks])


def _row(store: Path, kind: str, acts: list[tuple[dict[str, Any], str]]) -> list[str]:
    answers = [_ask(store, f"{kind} {n}", act) for n, (act, _) in enumerate(acts)]
    contexts = [one.context for one in answers if one.context]
    right = sum(
        bool(mark) and mark in one.context for one, (_, mark) in zip(answers, acts, strict=True)
    )
    seconds = statistics.quantiles([one.seconds for one in answers], n=10)
    tokens = statistics.mean(map(_tokens, contexts)) if contexts else 0
    citation = statistics.mean(map(_citation_share, contexts)) if contexts else 0
    return [
        *(kind, str(len(acts)), f"{len(contexts) / len(acts):.0%}"),
        *(f"{right / len(acts):.0%}", f"{tokens:.0f}", f"{citation:.0%}"),
        *(f"{seconds[4] * 1000:.0f} ms", f"{seconds[8] * 1000:.0f} ms"),
        f"{statistics.median(one.processor_seconds for one in answers) * 1000:.0f} ms",
    ]


def _tokens(context: str) -> float:
    return byte_size(context) / BYTES_PER_TOKEN


def _citation_share(context: str) -> float:
    """Returns the share of a context that is not quoted text."""
    quoted = sum(byte_size(line) for line in context.split("\n") if line.startswith("> "))
    return 1 - quoted / byte_size(context)


def _ask(store: Path, session: str, act: dict[str, Any]) -> Answered:
    failed = "error" in act
    event = {
        "session_id": session.replace(" ", "-"),
        "cwd": str(store.parent),
        "hook_event_name": "PostToolUseFailure" if failed else "PreToolUse",
        "tool_name": "Bash",
        **({"tool_input": {"command": "make"}, **act} if failed else {"tool_input": act}),
    }
    command = [*KBPROC, "hook", "tool", "--store", str(store), *_PATIENT]
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        command,
        input=json.dumps(event).encode(),
        stdout=subprocess.PIPE,
        env=environment(),
        check=True,
    )
    seconds, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    answered = json.loads(done.stdout)["hookSpecificOutput"] if done.stdout else {}
    return Answered(answered.get("additionalContext", ""), seconds, used)


if __name__ == "__main__":
    sys.exit(main())
