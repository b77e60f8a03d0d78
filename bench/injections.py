"""Measures what hooks inject: `python -m bench.injections ask DATA ROWS`, `tables ROWS VERDICTS`.

DATA holds collections of real texts: `ir/locomo`, `ir/codebase-chunks`, `docs/til` and collections
of other subjects. One store gets LoCoMo's sessions as conversations, the codebases' files and a
developer's notes; a part of each is left out, so that some questions and acts have no answer in it.
Each prompt and act is sent to `kbproc hook` as a client sends it, in a session of its own, beside a
process that has the store open.

ROWS gets `rows.jsonl`, a sample of the injections to be judged without knowing where they come
from, and `key.jsonl` with everything else. In the control arm a prompt has what another one got: of
the same kind of text, and nearly as long. A file of verdicts has lines with `id` and `verdict`
(yes, partly, no); with two of them the tables show how far both readings agree.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import statistics
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from bench.conversations import as_conversation, lines
from bench.filling import kept
from bench.measure import KBPROC, Child, aligned, environment
from kbproc.base.budget import BYTES_PER_TOKEN, byte_size

_SEED = 66
_PATIENT = ("--deadline-ms", "60000")
_OTHERS = ("cranfield", "cacm", "cisi", "scifact")
_UNSTORED_CONVERSATIONS = 2
_UNSTORED_CODE = 33  # questions whose passages are cut out of their files
_KINDS = (
    "answered by a conversation",
    "answered by code",
    "on another subject",
    "of the wrong speaker",
    "of a conversation that is not stored",
    "on code that is not stored",
    "before an edit",
    "before a command",
    "after an error",
)
_JUDGED = {"injection": 20, "control": 8}  # rows of each kind and arm
_NEAREST_OF = 10  # injections of which a control is the one that is the most alike in length
_LEAST_LINE = 20  # characters of a line that no other passage has
_CITATION = re.compile(r"^\[")
_FENCE = re.compile(r"^(?:</?kbproc-reference>|Found in the|From the user's)")
_FENCED_CODE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^[$%] +(\S.{3,120}\w)$", re.MULTILINE)
_ERROR = re.compile(
    r"^(?:E? {0,8}[\w.]*(?:Error|Exception): |(?:E|e)rror: |fatal: |ERROR).{8,200}$"
    r"|^.{3,80}: (?:command not found|No such file or directory|Permission denied)",
    re.MULTILINE,
)
_FILE = re.compile(r"`([\w./-]*[\w-]{2,}\.(?:py|yml|yaml|toml|js|ts|json|sql|html|css|sh|cfg))`")
_DEFINED = re.compile(
    r"^\s*(?:pub |public |abstract |final |static |export )*"
    r"(?:class|struct|enum|trait|interface|fn|def|namespace)\s+(\w+)",
    re.MULTILINE,
)
_PACKAGE = re.compile(r"^package ([\w.]+);", re.MULTILINE)


class Question(Struct, frozen=True, kw_only=True):
    """A prompt or an act. `prompt`: the words; "" for an act. `relevant`: the texts that answer."""

    kind: str
    prompt: str = ""
    act: dict[str, Any] = {}
    relevant: list[str] = []

    @property
    def words(self) -> str:
        return self.prompt or json.dumps(self.act, ensure_ascii=False)


class Row(Struct, frozen=True, kw_only=True):
    """A text that a hook injected; "" for none. `arm`: injection or control."""

    id: str
    arm: str
    question: Question
    injected: str
    milliseconds: float
    is_judged: bool = False

    @property
    def bytes_by_part(self) -> Counter[str]:
        """Returns the sizes of the fence, the citations and the quoted text."""
        sizes: Counter[str] = Counter()
        for line in self.injected.splitlines(keepends=True):
            is_text = not (_FENCE.match(line) or _CITATION.match(line))
            part = "text" if is_text else "citation" if _CITATION.match(line) else "fence"
            sizes[part] += byte_size(line)
        return sizes

    @property
    def holds_answer(self) -> bool:
        """Returns whether a quoted line stands in a text that answers."""
        quoted = [line[2:] for line in self.injected.splitlines() if line.startswith("> ")]
        telling = [_plain(line) for line in quoted if len(line) >= _LEAST_LINE]
        return any(line in _plain(text) for text in self.question.relevant for line in telling)


def _plain(text: str) -> str:
    return " ".join(text.replace("&lt;", "<").strip("…").split())


# ------------------------------------------------------------------------------ texts


class Collected(Struct, frozen=True, kw_only=True):
    """The files of a store by their paths, and what is asked of it."""

    files: dict[str, str]
    questions: list[Question]


def collected(data: Path) -> Collected:
    """Returns the files and the questions and acts, each kind shuffled by a seed."""
    chance = random.Random(_SEED)
    files: dict[str, str] = {}
    questions = [
        *_of_conversations(data / "ir" / "locomo", files, chance),
        *_of_code(data / "ir" / "codebase-chunks", files, chance),
        *_of_other_subjects(data / "ir", chance),
        *_of_notes(data / "docs" / "til" / "files", files, chance),
    ]
    return Collected(files=files, questions=questions)


def _answers(folder: Path, texts: dict[str, str]) -> dict[str, list[str]]:
    """Returns the texts that answer, by question."""
    answers: dict[str, list[str]] = defaultdict(list)
    for line in (folder / "qrels.tsv").read_text().splitlines()[1:]:
        question, document, _ = line.split("\t")
        answers[question].append(texts[document])
    return answers


def _of_conversations(
    folder: Path, files: dict[str, str], chance: random.Random
) -> Iterator[Question]:
    turns = lines(folder / "corpus.jsonl")
    answers = _answers(folder, {turn["_id"]: turn["text"] for turn in turns})
    names = sorted({turn["conv"] for turn in turns})
    unstored = chance.sample(names, _UNSTORED_CONVERSATIONS)
    sessions: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    for turn in turns:
        if turn["conv"] not in unstored:
            sessions[turn["conv"], turn["session"]].append(turn)
    for (name, number), some in sessions.items():
        path = f"chats/{name}-{number:02}.jsonl"
        files[path] = as_conversation(some[0]["title"], some)
    kinds: dict[str, list[Question]] = defaultdict(list)
    for question in lines(folder / "queries.jsonl"):
        if question["_id"] not in answers:
            continue
        is_wrong = question["category"] == "adversarial"
        kind = "answered by a conversation"
        if question["conv"] in unstored:
            kind = "of a conversation that is not stored"
        elif is_wrong:
            kind = "of the wrong speaker"
        if is_wrong and question["conv"] in unstored:
            continue
        relevant = answers[question["_id"]] if kind == "answered by a conversation" else []
        kinds[kind].append(Question(kind=kind, prompt=question["text"], relevant=relevant))
    for kind, count in (
        ("answered by a conversation", 100),
        ("of the wrong speaker", 34),
        ("of a conversation that is not stored", 33),
    ):
        yield from chance.sample(kinds[kind], count)


def _of_code(folder: Path, files: dict[str, str], chance: random.Random) -> Iterator[Question]:
    passages = {one["_id"]: one["text"] for one in lines(folder / "corpus.jsonl")}
    answers = _answers(folder, passages)
    questions = lines(folder / "queries.jsonl")
    chance.shuffle(questions)
    unstored, stored = questions[:_UNSTORED_CODE], questions[_UNSTORED_CODE:]
    removed = {text for one in unstored for text in answers[one["_id"]]}
    for one in unstored:
        yield Question(kind="on code that is not stored", prompt=one["text"])
    answered = [one for one in stored if removed.isdisjoint(answers[one["_id"]])]
    for one in answered[:100]:
        relevant = answers[one["_id"]]
        yield Question(kind="answered by code", prompt=one["text"], relevant=relevant)
    parts: dict[str, list[str]] = defaultdict(list)
    for name, text in passages.items():
        parts[name.partition(":")[0]].append(text)
    for number, some in enumerate(parts.values()):
        path = f"code/{_path_of(''.join(some), number)}"
        files[path] = "".join(text for text in some if text not in removed)
        if number % 5 == 0:
            new = chance.choice(some)
            yield _edit(path, new[:60], new)


def _path_of(text: str, number: int) -> str:
    """Returns a likely path for a file of a codebase, because the collection has none."""
    defined = _DEFINED.search(text)
    name = defined[1] if defined else f"part{number}"
    if package := _PACKAGE.search(text):
        return f"{package[1].replace('.', '/')}/{name}.java"
    if "#include" in text or "#pragma" in text:
        return f"{number}/{name}.cpp"
    is_rust = re.search(r"^\s*(?:use |fn |pub |//!)", text, re.MULTILINE)
    return f"{number}/{name}.{'rs' if is_rust else 'py'}"


def _of_other_subjects(folder: Path, chance: random.Random) -> Iterator[Question]:
    for name in _OTHERS:
        path = next((folder / name).glob("queries*.jsonl"))
        for one in chance.sample(lines(path), 50):
            yield Question(kind="on another subject", prompt=one["text"])


def _of_notes(folder: Path, files: dict[str, str], chance: random.Random) -> Iterator[Question]:
    """Stores every second note; yields acts from the texts of all notes."""
    pages = {path.relative_to(folder): path.read_text() for path in sorted(folder.rglob("*.md"))}
    acts: dict[tuple[str, bool], list[Question]] = defaultdict(list)
    for number, (path, text) in enumerate(pages.items()):
        is_stored = number % 2 == 0
        if is_stored:
            files[f"notes/{path}"] = text
        code = "\n".join(_FENCED_CODE.findall(text))
        for name in _FILE.findall(text)[:1]:
            acts["edit", is_stored].append(_edit(name, "a", "b"))
        for command in _COMMAND.findall(code)[:2]:
            act = {"command": command.rstrip("\\ ")}
            acts["command", is_stored].append(Question(kind="before a command", act=act))
        for error in _ERROR.findall(code)[:2]:
            act = {"error": f"Exit code 1\n{error}"}
            acts["error", is_stored].append(Question(kind="after an error", act=act))
    for (kind, _), some in acts.items():
        yield from chance.sample(some, min(len(some), 8 if kind == "edit" else 17))


def _edit(path: str, old: str, new: str) -> Question:
    act = {"file_path": path, "old_string": old, "new_string": new}
    return Question(kind="before an edit", act=act)


# ---------------------------------------------------------------------------- asking


def ask(data: Path, folder: Path, stores: Path | None) -> None:
    """Fills a store, asks, and writes the rows and their key."""
    texts = collected(data)
    with kept(stores) as scratch:
        store, project = scratch / "store", scratch / "project"
        is_new = not store.exists()
        for path, text in texts.files.items():
            (project / path).parent.mkdir(parents=True, exist_ok=True)
            (project / path).write_text(text, encoding="utf-8")
        argv = [*KBPROC, "serve", "--root", str(project)]
        with Child(argv, KBPROC_STORE=str(store)) as owner:
            if is_new:
                for part in ("chats", "code", "notes"):
                    owner.result("doc.ingest", paths=[str(project / part)])
            _wait_for_vectors(owner)
            rows = [_injected(store, project, one, at) for at, one in enumerate(texts.questions)]
    chance = random.Random(_SEED)
    rows += _controls(rows)
    rows = _sampled(rows, chance)
    chance.shuffle(rows)  # an id in the old order would tell the arm
    rows = [msgspec.structs.replace(row, id=f"{at:04}") for at, row in enumerate(rows)]
    folder.mkdir(parents=True, exist_ok=True)
    judged = [row for row in rows if row.is_judged]
    blind = [
        {"id": row.id, "asked": row.question.words, "injected": row.injected} for row in judged
    ]
    _write(folder / "rows.jsonl", blind)
    _write(folder / "key.jsonl", rows)


def _wait_for_vectors(owner: Child) -> None:
    while owner.pending_embeddings():
        time.sleep(1)


def _write(path: Path, rows: Iterable[Any]) -> None:
    path.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))


def _injected(store: Path, project: Path, question: Question, number: int) -> Row:
    event: dict[str, Any] = {"session_id": f"bench-{number}", "cwd": str(project)}
    if question.prompt:
        event["prompt"] = question.prompt
    elif "error" in question.act:
        event |= {"hook_event_name": "PostToolUseFailure", "tool_name": "Bash", **question.act}
        event["tool_input"] = {"command": "make"}
    else:
        event |= {"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": question.act}
    name = "prompt" if question.prompt else "tool"
    command = [*KBPROC, "hook", name, "--store", str(store), *_PATIENT]
    started = time.perf_counter()
    done = subprocess.run(
        command,
        input=json.dumps(event).encode(),
        stdout=subprocess.PIPE,
        env=environment(),
        check=True,
    )
    milliseconds = (time.perf_counter() - started) * 1000
    answer = json.loads(done.stdout)["hookSpecificOutput"] if done.stdout else {}
    injected = answer.get("additionalContext", "")
    id = f"{number:04}"
    return Row(
        id=id, arm="injection", question=question, injected=injected, milliseconds=milliseconds
    )


def _controls(rows: Sequence[Row]) -> list[Row]:
    """Returns a row for each injection, with what another prompt got in its place."""
    injections = [row for row in rows if row.injected]
    controls = []
    for row in injections:
        others = [
            one
            for one in injections
            if _sort_of(one) == _sort_of(row) and one.question.words != row.question.words
        ]
        drawn = random.Random(row.id).sample(others, min(len(others), _NEAREST_OF))
        if drawn:
            nearest = min(drawn, key=lambda one: abs(len(one.injected) - len(row.injected)))
            text = nearest.injected
            changed = {"id": f"{len(rows) + len(controls):04}", "arm": "control", "injected": text}
            controls.append(msgspec.structs.replace(row, **changed))
    return controls


def _sort_of(row: Row) -> str:
    """Returns what kind of text stands first in an injection."""
    first = next((line for line in row.injected.splitlines() if _CITATION.match(line)), "")
    return "turn" if ", turn " in first else "code" if "code/" in first else "note"


def _sampled(rows: Sequence[Row], chance: random.Random) -> list[Row]:
    """Returns the rows, of which some of each kind and arm are to be judged."""
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for row in rows:
        if row.injected:
            groups[row.question.kind, row.arm].append(row.id)
    judged = {
        id
        for (_, arm), ids in groups.items()
        for id in chance.sample(ids, min(len(ids), _JUDGED[arm]))
    }
    return [msgspec.structs.replace(row, is_judged=row.id in judged) for row in rows]


# ---------------------------------------------------------------------------- tables


def tables(folder: Path, verdict_files: Sequence[Path]) -> Iterator[str]:
    rows = [msgspec.json.decode(line, type=Row) for line in (folder / "key.jsonl").open("rb")]
    yield aligned(list(_costs([row for row in rows if row.arm == "injection"])))
    readings = [{one["id"]: one["verdict"] for one in lines(path)} for path in verdict_files]
    if readings:
        judged = [row for row in rows if row.is_judged]
        yield aligned(list(_shares(judged, readings)))
    if len(readings) > 1:
        for words, some in (
            ("rows", judged),
            ("injections", [row for row in judged if row.arm == "injection"]),
        ):
            pairs = [(readings[0][row.id] != "no", readings[1][row.id] != "no") for row in some]
            yield f"Cohen's kappa of {len(pairs)} {words}: {kappa(pairs):.2f}\n"


def _kinds(rows: Iterable[Row]) -> dict[str, list[Row]]:
    kinds: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        kinds[row.question.kind].append(row)
    return {kind: kinds[kind] for kind in _KINDS if kind in kinds}


def _costs(rows: Sequence[Row]) -> Iterator[list[str]]:
    yield [
        *("prompts and acts", "sent", "get a text", "hold a passage that answers", "tokens"),
        *("of them fence", "citations", "text", "citation to text", "p50", "p90"),
    ]
    for kind, some in _kinds(rows).items():
        texts = [row for row in some if row.injected]
        sizes = sum((row.bytes_by_part for row in texts), Counter[str]())
        means = {part: size / BYTES_PER_TOKEN / len(texts) for part, size in sizes.items()}
        times = statistics.quantiles([row.milliseconds for row in some], n=10)
        holding = sum(row.holds_answer for row in texts)
        parts = [f"{means[part]:.0f}" if means else "" for part in ("fence", "citation", "text")]
        yield [
            *(kind, str(len(some)), f"{len(texts) / len(some):.0%}"),
            f"{holding / len(some):.0%}" if any(row.question.relevant for row in some) else "",
            *(f"{sum(means.values()):.0f}" if means else "", *parts),
            f"{sizes['citation'] / sizes['text']:.0%}" if sizes else "",
            *(f"{times[4]:.0f} ms", f"{times[8]:.0f} ms"),
        ]


def _shares(rows: Sequence[Row], readings: Sequence[dict[str, str]]) -> Iterator[list[str]]:
    """Yields the shares of rows that bear on what was asked, by kind and arm."""
    heads = [f"reading {number}" for number in range(1, len(readings) + 1)]
    yield ["prompts and acts", "arm", "judged", *heads, "yes in reading 1", "in all readings"]
    groups = [(kind, arm, some) for kind, some in _kinds(rows).items() for arm in _JUDGED]
    for kind, arm, of_kind in [*groups, *(("all", arm, rows) for arm in _JUDGED)]:
        some = [row for row in of_kind if row.arm == arm]
        if some:
            bearing = [[reading[row.id] != "no" for row in some] for reading in readings]
            used = [readings[0][row.id] == "yes" for row in some]
            every = [all(flags) for flags in zip(*bearing, strict=True)]
            shares = [f"{sum(flags) / len(some):.0%}" for flags in [*bearing, used, every]]
            yield [kind, arm, str(len(some)), *shares]


def kappa(pairs: Sequence[tuple[bool, bool]]) -> float:
    """Returns how much more two readings agree than by chance, by Cohen."""
    agreed = sum(one == other for one, other in pairs) / len(pairs)
    first, second = (sum(flags) / len(pairs) for flags in zip(*pairs, strict=True))
    by_chance = first * second + (1 - first) * (1 - second)
    return 1.0 if by_chance == 1 else (agreed - by_chance) / (1 - by_chance)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.injections")
    commands = parser.add_subparsers(dest="command", required=True)
    asking = commands.add_parser("ask", help="fill a store, ask, and write the rows")
    asking.add_argument("data", type=Path)
    asking.add_argument("rows", type=Path)
    asking.add_argument("--stores", type=Path, help="where the filled store is kept")
    reading = commands.add_parser("tables", help="print what was measured and judged")
    reading.add_argument("rows", type=Path)
    reading.add_argument("verdicts", type=Path, nargs="*")
    options = parser.parse_args()
    if options.command == "ask":
        ask(options.data, options.rows, options.stores)
    else:
        sys.stdout.write("\n".join(tables(options.rows, options.verdicts)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
