"""The docs show real behaviour: the tests run every fenced block of every page.

Blocks of `console` show the output of commands, as a newcomer without models sees it;
KBPROC_UPDATE_DOCS=1 writes that. Blocks of `sh` show only exit codes: 0, or the one that a
command's comment names.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.kit import chats, pages, pdfs
from tests.kit.pages import Block
from tests.kit.patience import all_or, until
from tests.kit.program import program
from tests.kit.schemas import fit
from tests.kit.shell import environment
from tests.kit.start import REPO
from tests.kit.talk import Session

TRIED = REPO / "docs" / "evidence" / "reliability.md"
# tests/calls runs the examples of reference.md, as params and as flags.
PAGES = {
    str(path.relative_to(REPO / "docs").with_suffix("")) if path == TRIED else path.stem: path
    for path in [REPO / "README.md", *sorted((REPO / "docs").glob("*.md")), TRIED]
    if path.stem != "reference"
}
EXAMPLES = {
    f"docs/examples/{path.name}": path.read_text() for path in (REPO / "docs/examples").iterdir()
}
BUNDLE, INDEX = (
    json.loads((REPO / "schemas" / "v1" / name).read_text())
    for name in ("bundle.json", "index.json")
)
UPDATES = os.environ.get("KBPROC_UPDATE_DOCS") == "1"  # before a test clears the environment
SHELL = {"sh", "console"}


class Scene(NamedTuple):
    """The state before a page: earlier commands, and files in the home."""

    before: tuple[str, ...] = ()
    files: dict[str, str] = {}


BACKUPS = "# Backups\n\nTo restore a backup, open its folder. To install git, ask Ann.\n"
HANDBOOK = {"docs/backups.md": BACKUPS, "docs/travel.md": "# Travel\n\nTake the train.\n"}
EXECUTABLE = "chmod +x docs/examples/*.sh"
ROPES = pdfs.pdf(
    pdfs.text_page(["Ropes"]),
    pdfs.text_page(["A rope may be used for ten years.", "Then it goes."]),
)
TODAY = datetime.now(UTC).date()
LAST_FRIDAY = str(TODAY - timedelta(days=TODAY.weekday() + 3))  # never a day of this week
# A folder of sentence-transformers, as far as a plan looks into it.
MODEL = {
    "models/mine/config.json": '{"model_type": "bert"}',
    "models/mine/modules.json": "[]",
    "models/mine/model.safetensors": "",
    "models/mine/tokenizer.json": "{}",
}
SCENES = {
    "README": Scene(files=HANDBOOK),
    "files": Scene(
        files={
            "papers/ropes.pdf": ROPES.decode(),
            "papers/loads.csv": "rope,load\n12 mm,4 t\n",
            "scans/scan.pdf": "%PDF-1.4, cut off",
            "scans/list.txt": "Scans of the old manuals.",
            "papers/node_modules/rope.js": "export {}",
        }
    ),
    "chats": Scene(
        files={
            ".claude/projects/-home-ann-crane/one.jsonl": chats.claude_code().decode(),
            ".claude/projects/-home-ann-crane/two.jsonl": chats.decision(
                "Which rope shall the crane get?",
                "We decided on a steel rope of 14 mm, because the load grows to 5 t.",
                LAST_FRIDAY,
            ).decode(),
            ".codex/sessions/2026/03/05/two.jsonl": chats.codex().decode(),
            "conversations.json": chats.claude().decode(),
        }
    ),
    "start": Scene(
        files={
            "handbook/backups.md": "# Backups\n\n## How do I restore a backup?\n\nStop the "
            "service, run restore --latest, start it.\n\n## Where are backups kept?\n\nOn two "
            "disks, one of them in the other building.\n",
            "handbook/travel.md": "# Travel\n\n## Which journeys go by train?\n\nThose under six "
            "hours go by train.\n",
            "handbook/leave.md": "# Leave\n\n## How long is parental leave?\n\nParental leave "
            "lasts fourteen months.\n",
            ".claude/settings.json": "{}\n",
            ".gemini/settings.json": "{}\n",
        }
    ),
    "shell": Scene(
        (
            "kbproc --store ~/work/kb kb create handbook",
            "kbproc --store ~/work/kb agent create robin",
            "kbproc agent create gitea",
            "git init -q ~/projects/site",
            "git config --global user.name A; git config --global user.email a@b.c",
            "git -C ~/projects/site commit -q --allow-empty -m One",
        ),
        {
            "projects/site/docs/backups.md": BACKUPS,
            "projects/site/deploys.md": "# Deploys\n\nOn Mondays.\n",
            "projects/site/report.sql": "select title from documents order by title",
            "projects/site/messages.ndjson": '{"title": "Monday", "text": "We met."}\n',
            "projects/site/mail.json": '[{"subject": "Lunch", "body": "At noon."}]',
        },
    ),
    "moving": Scene(
        ("kbproc kb create handbook", "kbproc add docs --kb handbook", "kbproc kb create archive"),
        HANDBOOK,
    ),
    "undo": Scene(
        (
            "kbproc doc create --title Travel --text 'Take the train.'",
            "kbproc doc create --title Backups --text 'To restore a backup, open its folder.'",
            "kbproc doc update 2 --text 'To restore a backup, ask Ann.'",
            "kbproc doc update 2 --tags operations",
            "kbproc doc delete 1 --yes",
            "kbproc --actor robot doc create --title Gossip --text 'Have you heard?'",
        ),
    ),
    "agents": Scene(files=HANDBOOK),
    "search": Scene(("kbproc add docs",), HANDBOOK),
    "page": Scene(("kbproc add docs",), HANDBOOK),
    "sql": Scene(("kbproc add docs",), HANDBOOK),
    "harness": Scene(("kbproc add docs", EXECUTABLE), HANDBOOK | EXAMPLES),
    "operations": Scene(("kbproc add docs", EXECUTABLE), HANDBOOK | EXAMPLES | MODEL),
    "reliability": Scene(("kbproc add docs",), HANDBOOK),
    "sessions": Scene(("kbproc add docs",), HANDBOOK),
    "hooks": Scene(files={"projects/site/docs/backups.md": BACKUPS}),
    "watch": Scene(("mkdir ~/handbook", "kbproc kb create team")),
}
# Only the tutorial shows these notes, because they would stand in every block.
NOTES = re.compile(
    r"^Note: (The search used words only|\d+ of \d+ passages? (is|are) found by words)\b.*\n", re.M
)
# Beginnings of commands not run here → the test that runs them, or why none can.
NOT_RUN = {
    "pip install ": "asks a package index; tests/repo/test_wheel.py installs",
    "kbproc model use multilingual-e5-small": "90 MB of weights; tests/models has them",
    "kbproc model use --undo": "needs a second model; tests/app/test_switch.py",
    "kbproc model use BAAI/": "a model of the hub; tests/models/test_hub.py has some",
    "kbproc model install": "asks a package index; tests/models/test_install.py has one",
    "pip download ": "asks a package index",
    "export KBPROC_RERANK_": "a model that is not here; see the next",
    'kbproc search "how long are backups kept?" --fusion rerank': "tests/search/test_rereading.py",
    'kbproc contract check --exec "./my-server': "yours; tests/contract judges servers",
    "kbproc contract client --exec": "takes long; tests/contract judges these two clients",
    "kbproc --store ~/kb cluster ": "needs servers; tests/cluster/test_nodes.py has them",
    "kbproc cluster init nats://127.0.0.1:4222 ": "needs a server; tests/sharing/test_demo.py",
    "printf 'http: 127.0.0.1:8222": "starts a server that nobody ends; tests/sharing/test_demo.py",
    "kbproc --store ~/kb store move ": "needs servers; tests/cluster/test_nodes.py has them",
    "kbproc work nats://": "needs servers; tests/cluster/test_work.py has them",
    "kbproc work tls://": "needs servers; tests/cluster/test_secured.py has one",
    "cd clients/typescript && ": "asks npm; tests/client/test_typescript.py builds and packs",
    "npm install ./kbproc-0.1.0.tgz": "asks npm; what is packed is looked at in test_typescript.py",
    "npm install --save-dev typescript": "asks npm; tests/client/test_typescript.py compiles",
    "json2ts ": "npm has it; tests/client/test_generators.py runs it",
    "kbproc hook install claude-code --count": "asks a person; tests/setup/test_hooks.py",
    "kbproc open": "runs until Ctrl-C; tests/page opens it",
    "kbproc plan approve HASH": "a plan that waits; tests/calls/test_waiting_plans.py has some",
    "quicktype ": "npm has it; tests/client/test_generators.py runs it",
    "datamodel-codegen ": "PyPI has it; tests/client/test_generators.py runs it",
}
# Beginnings of page and first line of other blocks → the test that runs or reads them.
ELSEWHERE = {
    "README: import itertools, json": "tests/client/test_examples.py",
    "design:  stdin ─▶ wire/lines": "drawn",
    "design:  stdin ─▶ wire ─▶ methods": "drawn",
    "cluster: http: 127.0.0.1:8222": "tests/kit/nats.py",
    "cluster: $ kbproc --store ~/kb cluster init": "tests/cluster/test_nodes.py",
    "contract: wrong    params.out": "what a broken server gets",
    "contract: unknown  not shown": "what a server without a method gets",
    'contract: """Kbproc, judged': "tests/contract",
    "harness: from kbproc.client import Kbproc": "tests/client/test_examples.py",
    "harness: 0.594073 Tides": "tests/client/test_examples.py",
    "typescript: // A harness: reads a folder": "tests/client/test_typescript.py",
    "search: {": "tests/models/test_hub.py",
    "search: [search]": "tests/models/test_hub.py",
    "typescript: {": "tests/client/test_typescript.py",
    "hooks: <kbproc-reference>": "tests/hooks/test_record.py",
    "notes: ---": "tests/agents/notes/test_sources.py",
    "hooks: Since 2026-03-02": "tests/hooks/test_counts.py",
    'chats: {"kbproc"': "tests/sources/parse/test_conversations.py",
}


def in_page(name: str) -> list[Block]:
    return pages.blocks(PAGES[name])


def runs(command: str) -> bool:
    return not command.startswith(tuple(NOT_RUN))


COMMANDS = [name for name in PAGES if {block.language for block in in_page(name)} & SHELL]
SLOW = {"harness", "reliability", "shell"}  # pages without output


@pytest.mark.parametrize("name", all_or([n for n in COMMANDS if n not in SLOW], COMMANDS))
def test_commands(name: str) -> None:
    scene = SCENES.get(name, Scene())
    commands = [one for block in in_page(name) for one in block.commands if runs(one)]
    results = pages.ran([*scene.before, *commands], scene.files)
    before, page_results = results[: len(scene.before)], iter(results[len(scene.before) :])
    assert not [one for one in before if one.exit]
    wrong, page = [], PAGES[name].read_text(encoding="utf-8")
    for block in in_page(name):
        block_results = [next(page_results) for one in block.commands if runs(one)]
        wrong += [one for one in block_results if one.exit != one.expected]
        if block.language == "console":
            printed = "".join(f"$ {one.command}\n{one.said}" for one in block_results)
            if name != "tutorial":
                printed = NOTES.sub("", printed)
            page = page.replace(block.text, printed, 1)
    assert not wrong
    if UPDATES:
        PAGES[name].write_text(page, encoding="utf-8")
    assert page == PAGES[name].read_text(encoding="utf-8"), "KBPROC_UPDATE_DOCS=1 writes it"


def test_every_block_is_run_or_listed() -> None:
    """This file or a listed test runs each block; each listed beginning is in use."""
    rest = [block for name in PAGES for block in in_page(name) if block.language not in SHELL]
    prefixes = {"shell: use =", "sessions: [llm]", "search: [rerank]", *ELSEWHERE, *WIRE, *CODE}
    here = [
        block for block in rest if (block.page, block.language) != ("sql", "sql")
    ]  # test_sql.py
    matches = [[name for name in prefixes if block.name.startswith(name)] for block in here]
    assert [block.name for block, names in zip(here, matches, strict=True) if len(names) != 1] == []
    assert prefixes == {name for names in matches for name in names}
    commands = [one for name in PAGES for block in in_page(name) for one in block.commands]
    assert [start for start in NOT_RUN if not any(one.startswith(start) for one in commands)] == []


def block_named(begins: str) -> Block:
    (block,) = [b for page in PAGES for b in in_page(page) if b.name.startswith(begins)]
    return block


# ------------------------------------------------------------------------------ settings


def test_settings() -> None:
    """The files of settings have the effect that their pages describe."""
    (profiles,) = [block.text for block in in_page("shell") if block.language == "toml"]
    (llm,) = [block.text for block in in_page("sessions") if block.language == "toml"]
    settings, *_, answer = pages.ran(
        [
            "chmod -R go= .config; kbproc profile show --format json --jq .data",
            "echo secret > .config/kbproc/llm.key; chmod 600 .config/kbproc/llm.key",
            "kbproc profile use --none; mkdir -m 700 s; mv store.toml s",
            "kbproc --store s link --trust",
            "kbproc --store s doc create --title Git --text 'Git is installed by make.'",
            "kbproc --store s chat 'How is git installed?' --dry-run",
        ],
        {".config/kbproc/profiles.toml": profiles, "store.toml": f"format = 2\n\n{llm}"},
    )
    for value in ("/home/robin/work/kb", "handbook", "robin"):
        assert value in settings.said
    assert re.search(r"ask openai qwen3 with a prompt of about [1-9]\d+ tokens", answer.said), (
        answer
    )


# ---------------------------------------------------------------------------------- wire


def ingesting(session: Session, folder: Path) -> None:
    (folder / "docs").mkdir()
    (folder / "docs" / "a.md").write_text(BACKUPS)


def followed(session: Session, folder: Path) -> None:
    session.data("doc.create", title="Notes", text="One.")
    session.data("kb.create", slug="handbook")
    session.data("doc.update", id=1, text="Two.")
    session.data("kb.update", slug="handbook", name="Handbook")
    session.data("doc.update", id=1, text="Three.")


# Blocks of messages → the function that prepares the store.
WIRE = {
    'protocol: ← {"jsonrpc"': ingesting,
    'events: {"jsonrpc"': followed,
    'events: {"seq"': followed,
}


@pytest.mark.parametrize("name", WIRE)
def test_messages(name: str, session: Session, tmp_path: Path) -> None:
    """The page's requests get its answers, and the index has each line's kind."""
    block = block_named(name)
    WIRE[name](session, tmp_path)
    if block.language == "json":
        record = json.loads(block.text)
        assert session.data("events.read", after_seq=record["seq"] - 1, limit=1) == [record]
        return
    if "init" not in block.name:
        session.outbox.rest()
    for line in block.text.splitlines():
        expected = elided(line.lstrip("←→ "))
        if expected.get("method", "event") != "event":
            session.send(line.lstrip("→ ").encode())
            continue
        while not fits(expected, message := json.loads(session.receive())):
            assert fits_a_line(message)
        assert fits_a_line(message)


def fits_a_line(message: Any) -> bool:
    """Returns whether the index has a kind of line with these members; checks its type."""
    kinds = [kind for kind in INDEX["lines"].values() if set(kind["has"]) <= message.keys()]
    types = [kind["type"] for kind in kinds if kind["from"] == "server"]
    for type in types:
        fit(message, {"$ref": f"#/$defs/{type}", "$defs": BUNDLE["$defs"]})
    return bool(types)


def elided(line: str) -> Any:
    """Returns the line's message, in which `…` stands for further members."""
    return json.loads(line.replace("{…}", '{"…":0}').replace(",…}", ',"…":0}'))


def fits(expected: Any, actual: Any) -> bool:
    if not isinstance(expected, dict) or not isinstance(actual, dict):
        return expected in ("…", actual)
    named = expected.keys() - {"…"}
    is_whole = "…" in expected or named == actual.keys()
    return is_whole and named <= actual.keys() and all(fits(expected[k], actual[k]) for k in named)


# ---------------------------------------------------------------------------------- code


def follows(code: str, folder: Path, session: Session) -> None:
    """Checks that the page's endless reader, once started again, prints only later records."""
    session.data("doc.create", title="Backups", text=BACKUPS)
    store = session.store.seq
    session.close()
    (folder / "bin").mkdir()
    env = {**environment(folder), "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
    seq_file = folder / "last-seq"
    with program(folder / "bin" / "kbproc"):
        for seq, line in ((store, "add document 1"), (store + 1, "add document 2")):
            with subprocess.Popen(
                [sys.executable, "-uc", code], cwd=folder, env=env, stdout=subprocess.PIPE
            ) as reader:
                if seq > store:
                    more = ["kbproc", "doc", "create", "--title", "More", "--text", "More."]
                    subprocess.run(more, env=env, check=True, capture_output=True)
                until(
                    lambda seq=seq: seq_file.exists() and seq_file.read_text() == str(seq),
                    "a record",
                )
                reader.kill()
                output = reader.stdout.read().decode() if reader.stdout else ""
            assert line in output and ("document 1" in output) == (seq == store)


def compiles(code: str, folder: Path, session: Session) -> None:
    """Only compiles the code, because it would end this process."""
    compile(code, "reliability.md", "exec")


CODE = {
    "events: import json, pathlib": follows,
    "reliability: import sys, threading": compiles,
}


@pytest.mark.parametrize("name", CODE)
def test_code(name: str, tmp_path: Path, session: Session) -> None:
    CODE[name](block_named(name).text, tmp_path, session)
