"""The scripted conversations whose transcripts lie under golden/.

Each runs in a folder of its own that `make_files` fills, in memory and, in the quick profile only
some, over real pipes; both transcripts must be the golden one, byte for byte.

After a deletion no script requests a score: full-text statistics count deleted
chunks until the idle thread compacts the index, at a time of its choice.
"""

from __future__ import annotations

import fcntl
import http.server
import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

from kbproc.engine.log.lease import identity
from kbproc.knowledge.sessions.pieces import CursorPlace, cursor_of
from kbproc.methods.calls.registry import Registry
from tests.kit import llm, toys
from tests.kit.mail import MAIL, TEXTS
from tests.kit.talk import Both, Message, Session, Step, Until, as_bytes, cancel, request
from tests.kit.typed import COMMANDS, QUOTED

# Transcripts contain their folder, so it must be the same on every machine.
BASE = Path("/tmp/kbproc-golden")
PORT = 47653  # the web server's port in the URLs for doc.fetch; see `a_site`
SITE = f"http://127.0.0.1:{PORT}"

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
PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(64)
CHAPTERS = "\n\n".join(f"# Chapter {n}\n\n" + f"Word{n} " * 250 for n in range(1, 4))
CHANGED_S = 1_761_955_200  # 2025-11-01, the time of all files
QUESTIONS = """\
{"question": "how is git installed", "answers": ["install.md"]}
{"question": "what do zebras eat", "answers": []}
"""


def make_files(folder: Path) -> None:
    docs = folder / "docs"
    docs.mkdir()
    (docs / "git-admin.md").write_text(GUIDE)
    (docs / "setup-notes.txt").write_text(NOTES)
    (docs / "wiki.html").write_text(PAGE)
    (docs / "install.py").write_text(CODE)
    (docs / "picture.png").write_bytes(PICTURE)
    files = folder / "asked"
    files.mkdir()
    (files / "install.md").write_text("# Install\n\nFetch the archive of git and run make.\n")
    (files / "deploy.md").write_text("# Deploy\n\nDeploys happen on Fridays.\n")
    (files / "questions.jsonl").write_text(QUESTIONS)
    broken = folder / "broken"
    broken.mkdir()
    (broken / "good.md").write_text("# Good\n\nThis one can be read.\n")
    (broken / "bad.pdf").write_bytes(b"%PDF-1.4\nnot really\n")
    (broken / "empty.txt").write_text("\n")
    for path in folder.rglob("*.*"):
        os.utime(path, (CHANGED_S, CHANGED_S))


Around = Callable[[Path], AbstractContextManager[dict[str, Any] | None]]


class Conversation(NamedTuple):
    """A script. `around` prepares the folder and cleans up; it may yield options for the process.

    `exit` is the process's exit code.
    """

    script: list[Step]
    options: dict[str, Any] = {}
    model: str = "hash"
    parked: tuple[int, ...] = ()
    around: Around = lambda folder: nullcontext()
    registry: Registry | None = None
    in_memory: bool = True
    exit: int = 0


GITEA_ADMIN = """# Gitea: administration

Gitea runs on git.example.org as the user git.

## Webhooks

A webhook is added under Settings → Webhooks of a repository. Deliveries are listed there,
and each can be sent again. Only hosts in `ALLOWED_HOST_LIST` are called.
"""
GITEA_WEBHOOKS = """# Gitea: webhooks that are refused

A delivery that fails with "not allowed to call" means that the host is missing from
`ALLOWED_HOST_LIST` in app.ini, section [webhook]. Add it, restart, deliver again.
"""


# ------------------------------------------------------------------------- the steps


def confirm(id: int, method: str, /, **params: Any) -> Step:
    """Returns a request that confirms the plan in the last answer."""

    def step(last: Message) -> Message:
        plan = last["error"]["data"]["plan"]
        return request(id, method, **params, confirm=plan["plan_hash"])

    return step


def decide(id: int, method: str) -> Step:
    """Returns a step that decides on the oldest plan of the list before it."""
    return lambda last: ask(id, method, plan_hash=last["result"]["data"]["plans"][0]["plan_hash"])


def next_page(id: int, method: str, /, **params: Any) -> Step:
    def step(last: Message) -> Message:
        return request(id, method, **params, cursor=last["result"]["meta"]["next_cursor"])

    return step


def resume_after(id: int, **params: Any) -> Step:
    """Returns a resume after the first event of message 1."""
    return ask(id, "session.resume", **params, after=cursor_of(1, CursorPlace(5, 0)))


def without(path: str, line: Message) -> Step:
    """Returns a step that removes a file or folder before it sends the line."""

    def step(last: Message) -> Message:
        removed_path = BASE / "prune" / path
        shutil.rmtree(removed_path) if removed_path.is_dir() else removed_path.unlink()
        return line

    return step


ask = request
WAIT = ask("wait", "doc.wait", timeout_ms=20_000)
INGESTED: list[Step] = [ask(1, "doc.ingest", paths=["docs"]), WAIT]


# ------------------------------------------------------------------ around the steps


@contextmanager
def with_agents(folder: Path) -> Iterator[None]:
    """Prepares two agents, one of them with older notes, and a deleted agent."""
    session = Session(folder / "store", cwd=folder, model="hash")
    session.data("kb.create", slug="private")
    session.data("knowledge.store", title="Vault", body="The vault opens at nine.", kb="private")
    session.data("knowledge.store", title="Backups", body="Backups run each night.")
    session.data("knowledge.store", title="Mirrors", body="Mirrors are pulled each hour.")
    session.data("doc.wait")
    notes = folder / "store" / "notes" / "gitea"
    notes.mkdir(parents=True)
    (notes / "gitea-admin.md").write_text(GITEA_ADMIN)
    session.data(
        "agent.create",
        slug="gitea",
        description="Looks after Gitea.",
        kbs=["default"],
        quotas={"knowledge_stored": 1, "notes_stored": 2},
        instructions="Search your notes first. Write down what you find out.",
    )
    session.data("note.sync", agent="gitea")
    scopes = ["store:read", "doc:read", "knowledge:read", "knowledge:write"]
    session.data("agent.create", slug="reader", kbs=["default"], scopes=scopes)
    session.data("agent.create", slug="past")
    plan = session.ask("agent.delete", slug="past", dry_run=True)["result"]["meta"]["plan"]
    session.data("agent.delete", slug="past", confirm=plan["plan_hash"])
    session.embedded()
    session.close()
    yield


@contextmanager
def of_newer_format(folder: Path) -> Iterator[None]:
    (folder / "store").mkdir()
    (folder / "store" / "store.toml").write_text("format = 3\n")
    yield


@contextmanager
def of_garbage(folder: Path) -> Iterator[None]:
    (folder / "store").mkdir()
    (folder / "store" / "store.toml").write_text("format = [\n")
    yield


@contextmanager
def damaged(folder: Path) -> Iterator[None]:
    """Changes one byte of the first record."""
    Session(folder / "store", cwd=folder).close()
    segment = folder / "store" / "log" / "000000000001.ndjson"
    segment.write_bytes(segment.read_bytes().replace(b"Default", b"Defaulx"))
    shutil.rmtree(folder / "store" / "views")
    yield


@contextmanager
def a_file(folder: Path) -> Iterator[None]:
    """Puts a file in the store's place."""
    (folder / "store").write_text("not a folder\n")
    yield


@contextmanager
def held(folder: Path) -> Iterator[None]:
    (folder / "store").mkdir()
    with (folder / "store" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write(f"1234\n{identity(folder / 'store')}\n")
        lock.flush()
        yield


@contextmanager
def cut_off(folder: Path) -> Iterator[None]:
    """Prepares an ingest with a token whose last record, the outcome, is missing."""
    session = Session(folder / "store", cwd=folder)
    session.data("doc.ingest", paths=["docs"], client_token="monday", glob="*.md")
    session.embedded()
    session.close()
    segment = folder / "store" / "log" / "000000000001.ndjson"
    segment.write_bytes(b"".join(segment.read_bytes().splitlines(keepends=True)[:-1]))
    shutil.rmtree(folder / "store" / "views")
    yield


@contextmanager
def cut_off_answer(folder: Path) -> Iterator[None]:
    """Prepares an answer whose last record, its end, is missing."""
    session = Session(folder / "store", cwd=folder)
    session.data("doc.ingest", paths=["docs"])
    session.embedded()
    session.data("chat", question="How is git installed?", client_token="t")
    session.close()
    segment = folder / "store" / "log" / "000000000001.ndjson"
    segment.write_bytes(b"".join(segment.read_bytes().splitlines(keepends=True)[:-1]))
    shutil.rmtree(folder / "store" / "views")
    yield


@contextmanager
def lost_pipe(folder: Path) -> Iterator[None]:
    """Prepares an answer whose client disconnected before its end."""
    session = Session(folder / "store", cwd=folder)
    session.data("doc.ingest", paths=["docs"])
    session.embedded()
    asking = session.another("user")
    asking.send(as_bytes(request(1, "chat", question="How is git installed?")))
    while json.loads(asking.receive())["params"]["type"] != "references":
        pass
    asking.connection.end(0.0)
    session.data("session.resume", session_id=1, message_id=1)
    session.close()
    yield


WHOLE = [llm.say("Fetch the archive and run make [1]."), llm.finish(prompt_tokens=90)]
SAID: dict[str, list[llm.Step]] = {
    "install git: whole": WHOLE,
    "install git: unknown": [llm.say("I don't know."), llm.finish()],
    "install git: cut off": [llm.say("Fetch the "), llm.cut],
    "install git: too many": [llm.refuse(429, Retry_After="7")],
    "install git: no such model": [llm.refuse(404)],
    "install git: length": [llm.say("Fetch the archive and"), llm.finish("length")],
    "install git: hang": [llm.say("Fetch the archive"), llm.hang],
}


@contextmanager
def a_model(folder: Path) -> Iterator[dict[str, Any]]:
    with llm.endpoint(lambda question: SAID[question]) as endpoint:
        yield {"llm": endpoint.url}


class _Site(http.server.BaseHTTPRequestHandler):
    ANSWERS = {
        "/wiki": (200, "text/html", PAGE.encode()),
        "/notes.txt": (200, "text/plain", NOTES.encode()),
        "/picture": (200, "image/png", PICTURE),
        "/empty": (200, "text/html", b"<html></html>"),
    }

    def do_GET(self) -> None:
        if self.path.startswith("/moved"):
            self.send_response(302)
            self.send_header("Location", "/moved" if self.path == "/moved" else "/wiki")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        status, kind, body = self.ANSWERS.get(self.path, (404, "text/plain", b"no such page"))
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def a_site(folder: Path) -> Iterator[dict[str, Any]]:
    """Serves the site on a free port; yields the option that redirects PORT to it."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Site)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield {"lead": f"{PORT}:{server.server_port}"}
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


# ----------------------------------------------------------------- the conversations

# The first two can be added, each only once.
MANY = [
    {"title": "Monday", "text": "We met.", "source_id": "log/1", "tags": ["Log"]},
    {"title": "Tuesday", "text": "We built.", "source_id": "log/2"},
    {"title": "Lost", "text": "Nowhere.", "kb": "defualt"},
    {"title": "Blank", "text": " "},
    {"title": "Nothing", "text": "<p></p>", "type": "html"},
    {"title": "Wednesday", "text": "# Rest\n\nWe rested.", "type": "markdown"},
    {"title": "Thursday", "text": "We built more.", "metadata": {"mood": "good"}},
]

CONVERSATIONS: dict[str, Conversation] = {
    "history": Conversation(
        [
            ask(1, "doc.create", title="Plan", text="We build a boat.", source_id="plan"),
            WAIT,
            ask(2, "doc.update", id=1, text="We build a ship."),
            WAIT,
            ask(3, "doc.update", id=1, tags=["done"]),
            WAIT,
            ask(4, "doc.delete", ids=[1]),
            confirm(5, "doc.delete", ids=[1]),
            ask(6, "doc.get", id=1),
            ask(7, "doc.get", id=1, text=True, as_of=2),
            ask(8, "search", query="boat", mode="fts", as_of=2),
            ask(9, "search", query="ship", as_of=4),
            ask(10, "tag.list", as_of=4),
            ask(11, "doc.list", as_of=99),
            ask(12, "doc.history", id=1),
            ask(13, "doc.restore", ids=[1], dry_run=True),
            ask(14, "doc.restore", ids=[1]),
            WAIT,
            ask(15, "doc.restore", ids=[1], revision=1),
            ask(16, "doc.restore", ids=[9]),
            ask(17, "events.revert", seqs=[7]),
            confirm(18, "events.revert", seqs=[7]),
            WAIT,
            ask(19, "doc.get", id=1, text=True),
            ask(20, "doc.history", id=1, limit=2),
        ]
    ),
    "compact": Conversation(
        [
            ask(1, "doc.create", title="Weather", text="It rains.", client_token="w"),
            WAIT,  # so that compacting forgets a vector
            ask(2, "doc.update", id=1, text="It snows."),
            WAIT,
            ask(3, "store.compact", before="2026-01-02", dry_run=True),
            ask(4, "store.compact", before="2026-01-02"),
            confirm(5, "store.compact", before="2026-01-02"),
            ask(6, "doc.get", id=1, text=True),
            ask(7, "doc.get", id=1, text=True, as_of=2),
            ask(8, "doc.history", id=1),
            ask(9, "doc.restore", ids=[1], revision=1),
            ask(10, "doc.create", title="Weather", text="It rains.", client_token="w"),
            ask(11, "store.compact", before="yesterday"),
            ask(12, "store.compact", before="2025-01-01"),
            ask(13, "events.verify"),
        ]
    ),
    "purge": Conversation(
        [
            ask(
                1, "doc.create", title="Secret", text="The key is under the mat.", client_token="s"
            ),
            ask(2, "doc.create", title="Harmless", text="The weather is fine."),
            WAIT,
            ask(3, "store.purge", document_ids=[1], dry_run=True),
            ask(4, "store.purge", document_ids=[1]),
            confirm(5, "store.purge", document_ids=[1]),
            ask(6, "doc.get", id=1),
            ask(7, "doc.history", id=1),
            ask(
                8, "doc.create", title="Secret", text="The key is under the mat.", client_token="s"
            ),
            ask(9, "store.purge", document_ids=[1]),
            ask(10, "store.purge", document_ids=[77]),
            ask(11, "events.verify"),
            ask(12, "events.read"),
        ]
    ),
    "events": Conversation(
        [
            *INGESTED,
            ask(2, "events.read", limit=1),
            next_page(3, "events.read", limit=1),
            ask(4, "events.read", types=["doc.written"], after_seq=1),
            ask(5, "events.read", types=["doc.writen"]),
            ask(6, "doc.create", title="Short", text="Few words.", client_token="t"),
            ask(7, "events.read", after_seq=2, full=True),
            ask(8, "events.verify"),
            ask(9, "events.subscribe", after_seq=1, timeout_ms=0),
            ask(10, "events.subscribe", after_seq=99, timeout_ms=0),
        ]
    ),
    "sql": Conversation(
        [
            *INGESTED,
            ask(2, "sql.query", sql="select id, title, tags from documents order by id", limit=2),
            ask(
                3,
                "sql.query",
                sql="select count(*) as n from chunks where text ilike ?",
                params=["%git%"],
            ),
            ask(4, "sql.query", sql="delete from documents"),
            ask(5, "sql.query", sql="select * from tokens"),
            ask(6, "sql.query", sql="select titel from documents"),
            ask(7, "sql.query", sql="select * from read_text('/etc/passwd')"),
            ask(8, "sql.query", sql="select 1; select 2"),
        ]
    ),
    "moving": Conversation(
        [
            ask(1, "doc.create", title="A", text="alpha", tags=["x"], source_id="a"),
            WAIT,
            ask(2, "store.backup", path="backup", dry_run=True),
            ask(3, "store.backup", path="backup"),
            ask(4, "store.backup", path="backup"),
            ask(5, "store.export"),
            ask(6, "store.export", path="all.ndjson"),
            ask(7, "store.import", path="all.ndjson"),
            ask(8, "doc.delete", ids=[1]),
            confirm(9, "doc.delete", ids=[1]),
            ask(10, "store.import", path="all.ndjson"),
            ask(11, "store.import", path="docs/git-admin.md"),
        ]
    ),
    "cluster": Conversation(
        [
            ask(1, "cluster.status"),
            ask(2, "cluster.join", servers=["nats://127.0.0.1:1"], stream="team", dry_run=True),
            ask(3, "cluster.init", servers=["http://127.0.0.1:1"], stream="team"),
            ask(4, "cluster.init", servers=["nats://127.0.0.1:1"], stream="team"),
            ask(5, "cluster.init", servers=["nats://127.0.0.1:1"], stream="team", dry_run=True),
            ask(6, "doc.create", title="A", text="alpha"),
            ask(7, "cluster.join", servers=["nats://127.0.0.1:1"], stream="team"),
            ask(8, "cluster.leave", dry_run=True),
            ask(9, "cluster.leave"),
            ask(10, "store.move", to=["nats://127.0.0.1:1"], dry_run=True),
            ask(11, "store.move", to=["nats://127.0.0.1:1"]),
            ask(12, "store.move", to=["file", "nats://127.0.0.1:1"]),
            ask(13, "store.move", to=["file"]),
            ask(14, "cluster.reseed"),
        ]
    ),
    "model_switch": Conversation(
        [
            ask(1, "doc.create", title="A", text="alpha beta"),
            WAIT,
            ask(2, "model.use", name="other", kind="hash", dim=24, dry_run=True),
            ask(3, "model.use", name="other", kind="hash", dim=24),
            ask(4, "search", query="alpha", mode="vector"),
            ask(5, "model.use", name="other", kind="hash", dim=24),
            ask(6, "model.use", name="/nowhere"),
            ask(7, "status"),
            ask(8, "model.list"),
            ask(9, "model.use", undo=True, dry_run=True),
            ask(10, "model.use", undo=True),
            ask(11, "model.use", name="other", undo=True),
        ]
    ),
    "process": Conversation(
        [
            ask(1, "ping"),
            ask(2, "version"),
            ask(3, "describe", method="ping"),
            ask(4, "describe", method="serach"),
            ask(5, "schema", name="ping.result"),
            ask(6, "schema", name="ping.results"),
            ask(7, "status"),
            ask(8, "doctor"),
            ask(9, "doctor", deep=True),
            ask(10, "index.rebuild", dry_run=True),
            ask(11, "index.rebuild"),
            ask(12, "doc.liste"),
            ask(13, "ping", min_seq=1),
        ]
    ),
    "requests": Conversation(
        [
            "nonsense",
            '{"jsonrpc":"2.0","id":1,"method":',
            b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"\xff"}}',
            b'{"jsonrpc":"2.0","id":1,"method":"search","params":{"query":"\xff"}}',
            b'{"jsonrpc":"2.0","id":1,"method":"p\xffng"}',
            "[" * 100_000,
            "7",
            "{}",
            '{"jsonrpc":"1.0","id":1,"method":"ping"}',
            '{"jsonrpc":"2.0","id":2}',
            '{"jsonrpc":"2.0","id":3,"method":4}',
            '{"jsonrpc":"2.0","id":4,"method":"ping","param":{}}',
            '{"jsonrpc":"2.0","id":5,"method":"ping","params":[1]}',
            '{"jsonrpc":"2.0","id":6,"method":"ping","params":null}',
            '{"jsonrpc":"2.0","method":"ping","params":[1]}',
            '{"jsonrpc":"2.0","method":"no.such.method"}',
            ask("last", "ping"),
        ]
    ),
    "ids": Conversation(
        [
            ask("a", "ping"),
            ask("", "ping"),
            ask(-7, "ping"),
            ask(0, "ping"),
            '{"jsonrpc":"2.0","id":null,"method":"ping"}',
            '{"jsonrpc":"2.0","id":1.5,"method":"ping"}',
            '{"jsonrpc":"2.0","id":1.0,"method":"ping"}',
            '{"jsonrpc":"2.0","id":true,"method":"ping"}',
            '{"jsonrpc":"2.0","id":[1],"method":"ping"}',
            '{"jsonrpc":"2.0","id":9223372036854775807,"method":"ping"}',
            '{"jsonrpc":"2.0","id":123456789012345678901234567890,"method":"doctor"}',
            '{"jsonrpc":"2.0","method":"ping"}',
            ask("last", "ping"),
        ]
    ),
    "batches": Conversation(
        [
            "[]",
            "[1,{}]",
            [ask(1, "ping"), {"jsonrpc": "2.0", "method": "ping"}, ask("two", "kb.get", slug="xx")],
            [{"jsonrpc": "2.0", "method": "ping"}, cancel(99)],
            [
                ask(3, "kb.get", slug="default"),
                ask(4, "doc.wait"),
            ],  # one stream: two may mix
            [ask(5, "ping", min_seq=999), ask(5, "ping"), cancel(5)],
            [ask(6, "kb.create", slug="first"), ask(7, "kb.create", slug="second")],
            ask("last", "kb.list"),
        ]
    ),
    "params": Conversation(
        [
            ask(1, "search"),
            ask(2, "search", query=""),
            ask(3, "search", query="x" * 2001),
            ask(4, "search", query=7),
            ask(5, "search", query="git", limit=0),
            ask(6, "search", query="git", limit=101),
            ask(7, "search", query="git", limit="ten"),
            ask(8, "search", query="git", limit=2.5),
            ask(9, "search", query="git", lmit=10),
            ask(10, "search", query="git", mode="semantic"),
            ask(11, "search", query="git", types=["markdown", "word"]),
            ask(12, "search", query="git", kb="Default"),
            ask(13, "search", query="git", kb="defualt"),
            ask(14, "search", query="git", tags=["ok", "no/\x07"]),
            ask(15, "search", query="git", created_after="yesterday"),
            ask(16, "search", query="git", created_after="2026-02-31"),
            ask(17, "search", query="git", metadata={"a": {"b": 1}}),
            ask(18, "search", query="git", document_ids=[1, 0]),
            ask(19, "search", query="git", offset=10**30),
            ask(20, "doc.list", cursor="!"),
            ask(21, "doc.list", cursor="Im5vIG51bWJlciI"),
            ask(22, "doc.create", title="a\u202eb", text="x"),
            ask(23, "doc.create", title="  ", text="x"),
            ask(24, "doc.create", title="t", text="x", tags=["a b", "!"]),
            ask(25, "doc.create", title="t", text="x", metadata={"k": "v" * 1001}),
            ask(26, "doc.create", title="t", text="x", metadata={"k\u200b": 1}),
            ask(27, "doc.create", title="t", text="x", client_token=""),
            ask(28, "doc.update", id=1),
            ask(29, "doc.delete"),
            ask(30, "doc.delete", where={}),
            ask(31, "doc.delete", where={"tag": ["x"]}),
            ask(32, "doc.delete", where={"types": ["word"]}),
            ask(33, "kb.update", slug="default"),
            ask(34, "kb.create", slug="No Such"),
            ask(35, "kb.delete", slug="default"),
            ask(36, "ping", min_seq=-1),
            ask(37, "ping", timeout_ms="soon"),
            ask(38, "doc.ingest", paths=[]),
            ask(39, "doc.ingest", paths=["docs", ""]),
            ask(40, "doc.ingest", paths=["a\0b"]),
        ]
    ),
    "kb": Conversation(
        [
            ask(1, "kb.list"),
            ask(2, "kb.create", slug="handbook", description="How we work.", dry_run=True),
            ask(3, "kb.create", slug="handbook", description="How we work."),
            ask(4, "kb.create", slug="handbook"),
            ask(5, "kb.get", slug="handbook"),
            ask(6, "kb.get", slug="handbok"),
            ask(7, "kb.update", slug="handbook", name="Handbook", dry_run=True),
            ask(8, "kb.update", slug="handbook", name="Handbook", expected_revision=1),
            ask(9, "kb.update", slug="handbook", name="Manual", expected_revision=1),
            ask(10, "kb.list", limit=1),
            next_page(11, "kb.list", limit=1),
            ask(12, "doc.ingest", paths=["docs/wiki.html"], kb="handbook"),
            WAIT,
            ask(13, "kb.status", slug="handbook"),
            ask(14, "kb.check", slug="handbook"),
            ask(15, "kb.delete", slug="handbook", dry_run=True),
            ask(16, "kb.delete", slug="handbook"),
            ask(17, "kb.update", slug="handbook", description="Changed meanwhile."),
            ask(18, "kb.delete", slug="handbook", confirm="0" * 32),
            confirm(19, "kb.delete", slug="handbook"),
            ask(20, "kb.get", slug="handbook"),
            ask(21, "kb.delete", slug="handbook"),
            ask(22, "kb.create", slug="handbook"),
            ask(23, "kb.status", slug="handbook"),
        ]
    ),
    "ingest": Conversation(
        [
            ask(1, "doc.ingest", paths=["docs", "broken"], dry_run=True),
            ask(2, "doc.ingest", paths=["docs"], tags=["Set Up"], metadata={"team": "ops"}),
            ask(3, "doc.ingest", paths=["docs"]),
            ask(4, "doc.ingest", paths=["broken"]),
            ask(5, "doc.ingest", paths=["broken"]),
            WAIT,
            ask(6, "kb.check", slug="default"),
            ask(7, "doc.ingest", paths=["docs/picture.png"]),
            ask(8, "doc.ingest", paths=["docs"], glob="*.rst"),
            ask(9, "doc.ingest", paths=["docs", "broken"], exclude=["*"]),
            ask(10, "doc.ingest", paths=["docs"], max_file_bytes=10),
            ask(11, "doc.ingest", paths=["nowhere"]),
            ask(12, "doc.ingest", paths=["docs"], kb="nowhere"),
            ask(13, "doc.ingest", paths=["docs", "/etc"]),
            ask(14, "doc.ingest", paths=["../.."]),
            WAIT,
            ask(15, "doc.list"),
            ask(16, "tag.list"),
            ask(17, "status"),
        ]
    ),
    "documents": Conversation(
        [
            ask(1, "doc.create", title="Notes 2.1", text="It reads DOCX.", tags=["release"]),
            ask(2, "doc.create", title="Dry", text="Nothing is kept.", dry_run=True),
            ask(3, "doc.create", title="Manual", text=CHAPTERS, type="markdown", source_id="m-1"),
            ask(4, "doc.create", title="Manual", text="again", source_id="m-1"),
            ask(5, "doc.create", title="Blank", text="  \n "),
            ask(6, "doc.create", title="Lost", text="x", kb="nowhere"),
            WAIT,
            ask(7, "doc.get", id=1),
            ask(8, "doc.get", id=1, text=True),
            ask(9, "doc.get", id=2, text=True, offset=10, length=12),
            ask(10, "doc.get", id=99),
            ask(11, "doc.update", id=1, tags=["Release", "v2"], expected_revision=1, dry_run=True),
            ask(12, "doc.update", id=1, tags=["Release", "v2"], expected_revision=1),
            ask(13, "doc.update", id=1, title="Stale", expected_revision=1),
            ask(14, "doc.update", id=1, text="It reads DOCX and PDF.", metadata={"draft": True}),
            ask(15, "doc.update", id=99, title="None"),
            WAIT,
            ask(16, "doc.list", title_contains="manual"),
            ask(17, "doc.list", tags=["v2"], types=["text"], status="ready"),
            ask(18, "doc.list", source_id="m-1", created_after="2025-12-31"),
            ask(19, "doc.list", status="pending"),
            ask(20, "doc.download", id=1),
            ask(21, "doc.download", id=1, offset=9, length=4),
            ask(22, "doc.download", id=1, path="copy.txt"),
            ask(23, "doc.download", id=1, path="copy.txt"),
            ask(24, "doc.download", id=1, path="/etc/copy.txt"),
            ask(25, "doc.download", id=1, path="no/such/folder.txt"),
            ask(26, "doc.reparse", ids=[1], dry_run=True),
            ask(27, "doc.reparse", ids=[1, 2]),
            ask(28, "doc.reparse", ids=[1, 98, 99]),
            ask(29, "doc.wait", ids=[1, 2]),
            ask(30, "doc.wait", ids=[99]),
        ]
    ),
    "many": Conversation(
        [
            ask(1, "doc.create", documents=MANY[:2], client_token="s"),
            ask(2, "doc.create", documents=MANY, client_token="t", dry_run=True),
            ask(3, "doc.create", documents=MANY, client_token="t"),
            ask(4, "doc.create", documents=MANY, client_token="t"),
            ask(5, "doc.create", documents=MANY[1:], client_token="t"),
            ask(6, "doc.create", documents=MANY[:1], kb="papers", client_token="u"),
            ask(7, "doc.create", documents=MANY[:1], kb="papers", tags=["x"]),
            ask(8, "doc.create", documents=[{"titel": "A", "text": "x"}], client_token="v"),
            ask(9, "doc.create", documents=[]),
            ask(10, "doc.create", kb="default"),
            WAIT,
            ask(11, "doc.list"),
            ask(12, "search", query="built", mode="fts"),
            ask(13, "doc.history", id=2),
            ask(14, "events.read", after_seq=1),
        ]
    ),
    "chunks": Conversation(
        [
            ask(1, "doc.create", title="Manual", text=CHAPTERS, type="markdown"),
            WAIT,
            ask(2, "chunk.list", document_id=1, limit=2),
            next_page(3, "chunk.list", document_id=1, limit=2),
            ask(4, "chunk.list", document_id=9),
            ask(5, "chunk.get", id=2, before=1, after=1),
            ask(6, "chunk.get", id=99),
            ask(7, "chunk.delete", ids=[2], dry_run=True),
            ask(8, "chunk.delete", ids=[2]),
            confirm(9, "chunk.delete", ids=[2]),
            ask(10, "chunk.delete", ids=[2, 99]),
            ask(11, "chunk.get", id=2),
            ask(12, "chunk.list", document_id=1),
            ask(13, "doc.get", id=1),
        ]
    ),
    "plans": Conversation(
        [
            ask(1, "doc.create", title="One", text="first words"),
            ask(2, "doc.create", title="Two", text="second words"),
            WAIT,
            ask(3, "chunk.map"),
            ask(4, "chunk.map", query="first words", limit=1),
            ask(5, "doc.delete", ids=[1]),
            ask(6, "doc.delete", ids=[2]),
            ask(7, "plan.list"),
            decide(8, "plan.approve"),
            ask(9, "plan.list"),
            decide(10, "plan.refuse"),
            ask(11, "plan.approve", plan_hash="0" * 32),
            ask(12, "events.read", after_seq=3),
        ]
    ),
    "deletion": Conversation(
        [
            ask(1, "doc.create", title="One", text="first", tags=["draft"]),
            ask(2, "doc.create", title="Two", text="second"),
            ask(3, "doc.create", title="Three", text="third"),
            WAIT,
            ask(4, "doc.delete", ids=[1], dry_run=True),
            ask(5, "doc.delete", ids=[1]),
            ask(6, "doc.delete", ids=[1], confirm="not the hash"),
            confirm(7, "doc.delete", ids=[1]),
            ask(8, "doc.get", id=1),
            ask(9, "doc.delete", ids=[1]),
            ask(10, "doc.delete", where={"tags": ["draft"]}),
            ask(11, "doc.delete", where={"title_contains": "t"}),
            ask(12, "doc.update", id=2, title="Two and a half"),
            lambda last: ask(13, "doc.delete", where={"title_contains": "t"}, confirm="stale"),
            confirm(14, "doc.delete", where={"title_contains": "t"}),
            ask(15, "doc.list"),
            ask(16, "search", query="second", mode="fts"),
            ask(17, "status"),
        ]
    ),
    "pages": Conversation(
        [
            *(
                ask(n, "doc.create", title=f"Page {n}", text=f"page {n}", tags=[f"t{n}", "all"])
                for n in range(1, 6)
            ),
            WAIT,
            ask(11, "doc.list", limit=2),
            next_page(12, "doc.list", limit=2),
            next_page(13, "doc.list", limit=2),
            ask(14, "tag.list", limit=4),
            next_page(15, "tag.list", limit=4),
            ask(16, "tag.list", kb=["default", "nowhere"]),
        ]
    ),
    "search": Conversation(
        [
            ask(0, "search", query="anything"),
            *INGESTED,
            ask(3, "search", query="install git"),
            ask(4, "search", query="install git", mode="fts", limit=2, explain=True),
            ask(5, "search", query="install git", limit=1, explain=True),
            ask(6, "search", query="deploy", mode="vector", limit=1, explain=True),
            ask(7, "search", query="install git", fusion="rrf", limit=2, explain=True),
            ask(8, "search", query='"latest version" -ppa', mode="fts"),
            ask(9, "search", query='"latest git" -version'),
            ask(10, "search", query="git -source", mode="vector"),
            ask(11, "search", query="install git", limit=1, offset=1),
            ask(12, "search", query="install", tags=["Admin"], types=["markdown"]),
            ask(13, "search", query="install", tags=["admin", "nope"], tags_mode="any"),
            ask(14, "search", query="git", document_ids=[3], kb="default", highlight=False),
            ask(15, "search", query="install", mode="fts", per_document=1, snippet_chars=20),
            ask(16, "search", query="install", mode="fts", min_score=0.5),
            ask(17, "search", query="install git", min_similarity=0.5),
            ask(18, "search", query="the", mode="fts"),
            ask(19, "search", query="zebra", limit=1),
        ]
    ),
    "typed": Conversation(
        [
            *(
                ask(number, "doc.create", title="Of it", text=text)
                for number, text in enumerate([*COMMANDS.values(), *QUOTED.values()])
            ),
            ask(20, "doc.wait"),
            *(
                ask(30 + number, "search", query=query, limit=1)
                for number, query in enumerate([*COMMANDS, *QUOTED])
            ),
            ask(50, "search", query="archive -folder", mode="fts"),
            ask(51, "search", query='"each file" "a port"', mode="fts", limit=2),
        ]
    ),
    "mail": Conversation(
        [
            *(
                ask(n, "doc.create", title=title, text=TEXTS[title])
                for n, title in enumerate(TEXTS)
            ),
            ask(10, "doc.wait"),
            ask(11, "search", query=MAIL, limit=1, explain=True),
            ask(12, "search", query=MAIL, limit=1, mode="fts"),
            ask(13, "chat", question="Why are backups slow?"),
            ask(14, "chat", question="Which deploys run at night on Sundays?"),
        ]
    ),
    "similar": Conversation(
        [
            ask(0, "knowledge.store", title="Disk of alpha", body="The disk of alpha is full."),
            WAIT,  # the next decision depends on its vector
            ask(1, "knowledge.store", title="Disk of beta", body="The disk of beta is full."),
            ask(2, "doc.create", title="Disks", text="The disk of alpha is full."),
            ask(3, "doc.wait"),
            ask(4, "knowledge.store", title="Disk of alpha", body="The disk of alpha is full."),
            ask(5, "doc.wait"),
            ask(6, "search", query="which disk is full", distinct=True),
            ask(
                7, "search", query="which disk was full in 1999", limit=4, mode="fts", explain=True
            ),
        ]
    ),
    "no_hits": Conversation(
        [
            *INGESTED,
            ask(2, "search", query="zebra", mode="fts"),
            ask(3, "search", query="???", mode="fts"),
            ask(4, "search", query="-git", mode="fts"),
            ask(5, "search", query='"git latest"', mode="fts"),
            ask(6, "search", query="git", mode="fts", types=["pdf"]),
            ask(7, "search", query="deploy", mode="fts", types=["markdown"]),
            ask(8, "search", query="git", mode="fts", offset=5),
            ask(9, "search", query="git", mode="fts", min_score=0.99),
            ask(10, "search", query="install", min_score=0.9, fusion="rrf"),
            ask(11, "search", query="install", mode="fts", min_score=0.02, fusion="rrf"),
            ask(12, "search", query="install", min_confidence=50),
            ask(13, "search", query="install", path_prefix="/nowhere"),
            ask(14, "search", query="install", created_before="2020-01-01"),
            ask(15, "search", query="install", metadata={"team": "ops"}),
        ]
    ),
    "no_model": Conversation(
        [
            *INGESTED,
            ask(2, "search", query="install git", limit=1),
            ask(3, "search", query="install git", mode="vector"),
            ask(4, "status"),
            ask(5, "doctor"),
            ask(6, "doc.list", limit=1, status="ready"),
        ],
        model="none",
    ),
    "model_missing": Conversation(
        [
            ask(1, "doc.create", title="One", text="first"),
            ask(2, "doc.wait"),
            ask(3, "search", query="first"),
            ask(4, "search", query="first", mode="vector"),
            ask(5, "status"),
            ask(6, "doctor"),
        ],
        model="onnx:no-such-model",
    ),
    "tokens": Conversation(
        [
            ask(1, "kb.create", slug="team", client_token="a"),
            ask(2, "kb.create", slug="team", client_token="a"),
            ask(3, "kb.create", slug="other", client_token="a"),
            ask(4, "kb.create", slug="team", client_token="b"),
            ask(5, "kb.create", slug="third", client_token="b"),
            ask(6, "kb.create", slug="fourth", client_token="c", dry_run=True),
            ask(7, "kb.create", slug="fourth", client_token="c", timeout_ms=5),
            ask(8, "doc.ingest", paths=["docs/wiki.html"], client_token="a"),
            ask(9, "doc.ingest", paths=["docs/wiki.html"], client_token="a"),
            ask(10, "doc.ingest", paths=["docs"], client_token="a"),
            ask(11, "doc.ingest", paths=["broken"], client_token="d"),
            ask(12, "doc.ingest", paths=["broken"], client_token="d"),
            ask(13, "kb.delete", slug="team", client_token="e"),
            confirm(14, "kb.delete", slug="team", client_token="e"),
            lambda last: ask(15, "kb.delete", slug="team", client_token="e", confirm="whatever"),
        ]
    ),
    "resume": Conversation(
        [
            ask(1, "doc.list", limit=1),
            ask(2, "doc.ingest", paths=["docs"], glob="*.md", client_token="monday"),
            ask(3, "doc.ingest", paths=["docs"], glob="*.md", client_token="monday"),
        ],
        around=cut_off,
    ),
    # No file matches, so that no record is written at a moment of its own.
    "watching": Conversation(
        [
            ask(1, "watch.add", folder="docs", glob="none*", dry_run=True),
            ask(2, "watch.add", folder="docs", glob="none*", tags=["Set Up"]),
            ask(3, "watch.add", folder="docs", glob="none*", tags=["Set Up"]),
            ask(4, "watch.add", folder="docs", glob="none*", prune="auto", poll=True),
            ask(5, "watch.add", folder="nowhere"),
            ask(6, "watch.add", folder="docs/git-admin.md"),
            ask(7, "watch.add", folder="../.."),
            ask(8, "watch.add", folder="docs", kb="nowhere"),
            ask(9, "watch.list", as_of=2),
            ask(10, "watch.list", as_of=4),
            ask(11, "events.read", types=["folder.watched"], full=True),
            ask(12, "watch.remove", folder="docs", machine="elsewhere"),
            ask(13, "watch.remove", folder="docs", dry_run=True),
            ask(14, "watch.remove", folder="docs"),
            ask(15, "watch.remove", folder="docs"),
            ask(16, "watch.list"),
        ]
    ),
    "prune": Conversation(
        [
            *INGESTED,
            ask(2, "doc.ingest", paths=["docs"], prune=True),
            without("docs/wiki.html", ask(3, "doc.ingest", paths=["docs"])),
            ask(4, "kb.check", slug="default"),
            ask(5, "doc.ingest", paths=["docs"], prune=True, dry_run=True),
            ask(6, "doc.ingest", paths=["docs"], prune=True),
            confirm(7, "doc.ingest", paths=["docs"], prune=True),
            ask(8, "doc.ingest", paths=["docs"], prune=True, confirm="stale"),
            without("docs", ask(9, "doc.ingest", paths=["docs"], prune=True)),
            confirm(10, "doc.ingest", paths=["docs"], prune=True),
            ask(11, "doc.ingest", paths=["docs"], prune=True),
            ask(12, "doc.list"),
        ]
    ),
    "waiting": Conversation(
        [
            ask(1, "ping", min_seq=999),
            cancel(1),
            ask(2, "kb.create", slug="one-more"),
            ask(3, "ping", min_seq=2, timeout_ms=1000),
            ask(4, "ping", min_seq=999, timeout_ms=0),
            ask(5, "search", query="x", min_seq=999, timeout_ms=0),
            [cancel(1), cancel(99), {"jsonrpc": "2.0", "method": "$/cancel", "params": {}}],
            ask(6, "ping", min_seq=999),
        ],
        parked=(1, 6),
    ),
    "overloaded": Conversation([ask(1, "ping"), [ask(2, "ping")]], {"max_in_flight": 0}),
    "too_large": Conversation(
        [
            ask(1, "doc.create", title="Long", text="long " * 1000),
            ask(2, "ping"),
            ask(3, "doc.create", title="Long", text="long " * 350),
            WAIT,
            ask(4, "doc.get", id=1, text=True),
            ask(5, "doc.get", id=1, text=True, length=100),
            ask("x" * 1500, "ping"),
            ask("last", "ping"),
        ],
        {"max_line_bytes": 2000},
    ),
    "scopes": Conversation(
        [
            ask(1, "ping"),
            [ask(2, "doc.list"), ask(20, "doctor")],
            ask(3, "kb.create", slug="mine"),
            ask(4, "doc.create", title="Mine", text="my text"),
            ask(5, "doc.delete", ids=[1]),
            ask(6, "doc.download", id=1, path="copy.txt"),
        ],
        {"scopes": "doc:read,doc:write"},
    ),
    "fetch": Conversation(
        [
            ask(1, "doc.fetch", url=f"{SITE}/wiki", tags=["web"]),
            WAIT,
            ask(2, "doc.fetch", url=f"{SITE}/wiki"),
            ask(3, "doc.fetch", url=f"{SITE}/notes.txt", dry_run=True),
            ask(4, "doc.fetch", url=f"{SITE}/moved-to-wiki"),
            ask(5, "doc.fetch", url=f"{SITE}/moved"),
            ask(6, "doc.fetch", url=f"{SITE}/nothing"),
            ask(7, "doc.fetch", url=f"{SITE}/picture"),
            ask(8, "doc.fetch", url=f"{SITE}/empty"),
            ask(9, "doc.fetch", url=f"{SITE}/wiki", max_bytes=10),
            ask(10, "doc.fetch", url=f"{SITE}/wiki", kb="nowhere"),
            WAIT,
            ask(11, "doc.list", url=f"{SITE}/wiki"),
        ],
        {"allow_private": True},
        around=a_site,
    ),
    "blocked": Conversation(
        [
            ask(1, "doc.fetch", url="http://127.0.0.1/secrets"),
            ask(2, "doc.fetch", url="http://[::1]:80/"),
            ask(3, "doc.fetch", url="http://169.254.169.254/latest/meta-data"),
            ask(4, "doc.fetch", url="file:///etc/passwd"),
            ask(5, "doc.fetch", url="https://user:secret@example.org/"),
            ask(6, "doc.fetch", url="http://127.0.0.1:99999/"),
        ]
    ),
    "knowledge": Conversation(
        [
            ask(
                1,
                "knowledge.store",
                title="The CI cache is keyed by lock file",
                body="Deleting the lock file drops the cache; builds take 12 minutes then.",
                tags=["CI"],
                confidence=60,
                task_ref={"task_id": "T-17", "kind": "produced"},
                source="https://ci.example.org/17",
                client_token="once",
            ),
            WAIT,  # the next decision depends on its vector
            ask(
                2,
                "knowledge.store",
                title="The CI cache is keyed by lock file and image",
                body="A new image drops the cache, too.",
                tags=["ci"],
                confidence=95,
            ),
            ask(
                3,
                "knowledge.store",
                title="Freeze",
                body="No deploys until the cache is warm.",
                expires_at="2026-02-01",
            ),
            ask(4, "knowledge.store", title="Late", body="x", expires_at="2025-12-31"),
            WAIT,
            ask(5, "knowledge.search", query="ci cache"),
            ask(6, "knowledge.supersede", old_id=1, new_id=2),
            ask(7, "knowledge.search", query="lock file", min_confidence=90, limit=1),
            ask(8, "knowledge.search", query="lock", mode="fts", include_superseded=True),
            ask(9, "search", query="cache", mode="fts", types=["knowledge"]),
            ask(10, "knowledge.get", id=1),
            ask(11, "knowledge.get", id=1, as_of=3),
            ask(12, "knowledge.list", task_id="T-17"),
            ask(13, "knowledge.list", task_id="T-17", include_superseded=True),
            ask(14, "knowledge.supersede", old_id=2, new_id=1),
            ask(15, "knowledge.supersede", old_id=1, new_id=3),
            ask(16, "knowledge.unsupersede", old_id=1, new_id=3),
            ask(17, "knowledge.unsupersede", old_id=1, new_id=2),
            ask(18, "knowledge.supersede", old_id=1, new_id=2),
            ask(19, "knowledge.delete", ids=[2]),
            confirm(20, "knowledge.delete", ids=[2]),
            ask(21, "knowledge.list"),
            ask(22, "knowledge.get", id=2),
            ask(23, "doc.delete", ids=[1]),
            ask(24, "doc.history", id=1),
            ask(
                25,
                "knowledge.store",
                title="The CI cache is keyed by lock file",
                body="Deleting the lock file drops the cache; builds take 12 minutes then.",
                tags=["CI"],
                confidence=60,
                task_ref={"task_id": "T-17", "kind": "produced"},
                source="https://ci.example.org/17",
                client_token="once",
            ),
            ask(26, "knowledge.store", title="Keys", body="By branch.", review_after="2099-01-01"),
            ask(34, "doc.wait", ids=[4]),  # so that its vector is in the score of `similar`
            ask(27, "knowledge.store", title="Keys", body="Not by branch.", derived_from=[4]),
            ask(28, "knowledge.verify", ids=[4], review_after="2100-01-01"),
            ask(29, "knowledge.verify", ids=[4], review_after="2001-01-01"),
            ask(33, "doc.wait", ids=[4, 5]),
            ask(30, "knowledge.duplicates", min_score=0.5),
            ask(31, "knowledge.list", due=True),
            ask(32, "knowledge.list", verified=True),
        ]
    ),
    "review": Conversation(
        [
            ask(1, "kb.create", slug="learned", review="all"),
            ask(2, "knowledge.store", kb="learned", title="Ports", body="SSH has port 22."),
            ask(3, "knowledge.store", kb="learned", title="Post", body="SSH has port 23."),
            WAIT,
            ask(4, "knowledge.search", query="ssh", mode="fts"),
            ask(5, "review.list"),
            ask(6, "status"),
            ask(7, "review.edit", id=1, tags=["ssh"]),
            ask(8, "review.approve", ids=[1], dry_run=True),
            ask(9, "review.approve", ids=[1], client_token="once"),
            WAIT,
            ask(10, "review.reject", ids=[2]),
            ask(11, "review.approve", ids=[2]),
            ask(12, "review.list"),
            ask(13, "knowledge.search", query="ssh", mode="fts"),
            ask(14, "kb.update", slug="learned", review="none"),
        ]
    ),
    "gitea_webhook": Conversation(
        [
            ask(1, "agent.get", slug="gitea"),
            ask(2, "note.search", query="gitea webhook"),
            ask(3, "note.get", slug="gitea-admin"),
            ask(4, "search", query="gitea webhook"),
            ask(5, "note.put", slug="gitea-webhooks", text=GITEA_WEBHOOKS, client_token="found"),
            WAIT,
            ask(6, "note.list"),
            ask(7, "note.search", query="webhook not allowed to call"),
            ask(8, "note.put", slug="gitea-webhooks", text=GITEA_WEBHOOKS, client_token="found"),
            ask(9, "note.sync"),
            ask(10, "agent.status", slug="gitea"),
        ],
        {"actor": "gitea", "agent_named": True},
        around=with_agents,
    ),
    "agents": Conversation(
        [
            ask(1, "agent.create", slug="deployer", kbs=["default"], quotas={"notes_stored": 5}),
            ask(2, "agent.create", slug="deployer"),
            ask(3, "agent.create", slug="user"),
            ask(4, "agent.create", slug="other", kbs=["defualt"]),
            ask(5, "agent.create", slug="other", scopes=["doc:reed"]),
            ask(6, "agent.create", slug="other", notes_folder="no/such/folder"),
            ask(7, "agent.update", slug="deployer", instructions="Ask before Friday."),
            ask(8, "agent.update", slug="deployer", clear=["kbs"], expected_revision=1),
            ask(9, "agent.update", slug="deployer", clear=["kbs"], expected_revision=2),
            ask(10, "agent.update", slug="deployer"),
            ask(11, "agent.list"),
            ask(12, "agent.get", slug="deployr"),
            ask(13, "agent.delete", slug="deployer"),
            confirm(14, "agent.delete", slug="deployer"),
            ask(15, "agent.get", slug="deployer"),
        ]
    ),
    "agent_bound": Conversation(
        [
            ask(1, "agent.list"),
            ask(2, "agent.get", slug="reader"),
            ask(3, "kb.list"),
            ask(4, "kb.get", slug="private"),
            ask(5, "kb.create", slug="private"),
            ask(6, "search", query="vault", mode="fts"),
            ask(7, "doc.get", id=1),
            ask(8, "status"),
            ask(9, "tag.list"),
            ask(10, "events.read"),
            ask(11, "knowledge.store", title="One", body="The first."),
            ask(12, "knowledge.store", title="Two", body="The second."),
            ask(13, "note.put", slug="two", text="# Two\n"),
            ask(14, "note.put", slug="three", text="# Three\n"),
            ask(15, "agent.update", slug="gitea", clear=["kbs"]),
            ask(16, "note.get", agent="reader", slug="anything"),
            WAIT,
            ask(17, "agent.check", slug="gitea"),
        ],
        {"actor": "gitea", "agent_named": True},
        around=with_agents,
    ),
    "agent_scopes": Conversation(
        [
            ask(1, "knowledge.supersede", old_id=2, new_id=3),
            ask(2, "knowledge.store", title="Nightly", body="Backups run at two.", confidence=99),
            WAIT,
            ask(3, "knowledge.supersede", old_id=2, new_id=4),
            ask(4, "knowledge.search", query="backups"),
            ask(5, "note.list"),
            ask(6, "doc.create", title="x", text="x"),
        ],
        {"actor": "reader"},
        around=with_agents,
    ),
    "agent_unknown": Conversation(
        [ask(1, "ping"), ask(2, "version")],
        {"actor": "gitee", "agent_named": True},
        around=with_agents,
    ),
    "agent_deleted": Conversation([ask(1, "ping")], {"actor": "past"}, around=with_agents),
    "notes": Conversation(
        [
            ask(1, "note.put", agent="gitea", slug="deploys", text="# Deploys\n\nOn Friday.\n"),
            ask(
                2,
                "note.put",
                agent="gitea",
                slug="deploys",
                text="# Deploys\n\nNever.\n",
                expected_revision=1,
            ),
            ask(3, "note.put", agent="gitea", slug="deploys", text="x", expected_revision=1),
            ask(4, "note.put", agent="gitea", slug="Deploys", text="x"),
            ask(5, "note.put", agent="gitea", slug="blank", text=" "),
            ask(6, "note.put", slug="whose", text="x"),
            ask(7, "note.put", agent="gitee", slug="whose", text="x"),
            WAIT,
            ask(8, "note.list", agent="gitea"),
            ask(9, "note.get", agent="gitea", slug="deploys"),
            ask(10, "note.get", agent="gitea", slug="deploys", as_of=8),
            ask(11, "note.get", agent="gitea", slug="deploy"),
            ask(12, "doc.update", id=4, title="x"),
            ask(13, "note.delete", agent="gitea", slug="deploys"),
            confirm(14, "note.delete", agent="gitea", slug="deploys"),
            ask(15, "note.sync", agent="gitea"),
            ask(16, "agent.delete", slug="gitea"),
            ask(17, "note.history", agent="gitea", slug="deploys"),
            ask(18, "note.history", agent="gitea", slug="nothing"),
        ],
        around=with_agents,
    ),
    "sessions": Conversation(
        [
            ask(1, "session.create", title="Setting up Git", kb="default", client_token="a"),
            ask(2, "session.create", title="Setting up Git", kb="default", client_token="a"),
            ask(3, "session.create", agent="gitea", dry_run=True),
            ask(4, "session.create", agent="gitea"),
            ask(5, "session.create", agent="gitee"),
            ask(6, "session.create", kb=["default", "defualt"]),
            ask(7, "session.create", title="a\u202eb"),
            ask(8, "session.list", limit=1),
            next_page(9, "session.list", limit=1),
            ask(10, "session.get", session_id=1),
            ask(11, "session.get", session_id=99),
            ask(12, "session.delete", session_ids=[1, 99]),
            ask(13, "session.delete", session_ids=[1]),
            confirm(14, "session.delete", session_ids=[1]),
            ask(15, "session.get", session_id=1),
            ask(16, "session.get", session_id=1, as_of=12),
            ask(17, "session.list"),
            ask(18, "events.read", types=["session.created", "session.deleted"], full=True),
        ],
        around=with_agents,
    ),
    "answers": Conversation(
        [
            *INGESTED,
            ask(2, "session.create", title="Setting up Git"),
            ask(3, "session.ask", session_id=1, question="How is git installed?", dry_run=True),
            ask(4, "session.ask", session_id=1, question="How is git installed?"),
            resume_after(5, session_id=1, message_id=1),
            ask(6, "session.resume", session_id=1, message_id=1),
            ask(7, "session.resume", session_id=1, message_id=1, snapshot=True),
            ask(8, "session.ask", session_id=1, question="And from which archive?"),
            ask(
                9,
                "session.resume",
                session_id=1,
                message_id=2,
                after=cursor_of(1, CursorPlace(5, 0)),
            ),
            ask(
                10,
                "session.resume",
                session_id=1,
                message_id=1,
                after=cursor_of(1, CursorPlace(90, 0)),
            ),
            ask(11, "session.resume", session_id=1, message_id=1, after="?"),
            ask(12, "session.resume", session_id=1, message_id=1, after="MQ", snapshot=True),
            ask(13, "session.resume", session_id=1, message_id=3),
            ask(14, "chat", question="What do zebras eat?", client_token="z"),
            ask(15, "chat", question="What do zebras eat?", client_token="z"),
            ask(16, "chat", question="What do lions eat?", client_token="z"),
            ask(17, "chat", question="How is git installed?", kb="nowhere"),
            ask(18, "chat", question="When is deployed?", references="snippets"),
            ask(19, "chat", question="Deploy when?", references="full", budget_tokens=100),
            ask(20, "session.stop", session_id=1, message_id=1),
            ask(21, "session.stop", session_id=1, message_id=9),
            ask(22, "session.get", session_id=1, limit=1),
            ask(23, "events.read", types=["question.asked", "answer.said"], full=True, limit=2),
            ask(24, "sql.query", sql="select session_id, status, text from messages order by id"),
            ask(25, "session.search", query="which archive", limit=1),
            ask(26, "session.search", query="git yesterday", created_after="2030-01-01"),
            ask(27, "search", query="zebras", types=["conversation"]),
        ],
    ),
    "answer_agents": Conversation(
        [
            ask(1, "agent.invoke", slug="gitea", question="When do backups run?"),
            ask(2, "agent.invoke", slug="gitea", question="When does the vault open?"),
            ask(3, "agent.invoke", slug="reader", session_id=1, question="When?"),
            ask(4, "agent.invoke", slug="gitea", session_id=1, question="And the mirrors?"),
            ask(5, "agent.invoke", slug="gitee", question="When?"),
            ask(6, "chat", question="When does the vault open?"),
            ask(7, "session.list"),
        ],
        around=with_agents,
    ),
    "answer_model": Conversation(
        [
            *INGESTED,
            ask(2, "chat", question="install git: whole"),
            ask(3, "chat", question="install git: unknown"),
            ask(4, "chat", question="install git: cut off"),
            ask(5, "session.resume", session_id=3, message_id=3),
            ask(6, "chat", question="install git: too many"),
            ask(7, "chat", question="install git: no such model"),
            ask(8, "chat", question="install git: length"),
            Until(ask(9, "chat", question="install git: hang"), "answer"),
            Both(ask(10, "session.stop", session_id=7, message_id=7), (9, 10)),
            Until(ask(11, "chat", question="install git: hang", client_token="h"), "answer"),
            Both(cancel(11), (11, 11)),
            ask(12, "chat", question="install git: hang", client_token="h"),
            ask(13, "session.list"),
        ],
        around=a_model,
    ),
    "answer_lost_pipe": Conversation(
        [
            ask(
                1,
                "session.resume",
                session_id=1,
                message_id=1,
                after=cursor_of(1, CursorPlace(5, 0)),
            ),
            ask(2, "session.resume", session_id=1, message_id=1),
        ],
        around=lost_pipe,
    ),
    "answer_purged": Conversation(
        [
            *INGESTED,
            ask(2, "chat", question="How is git installed?", client_token="t"),
            ask(3, "session.ask", session_id=1, question="Who painted the Mona Lisa?"),
            ask(4, "store.purge", document_ids=[1]),
            confirm(5, "store.purge", document_ids=[1]),
            ask(6, "session.resume", session_id=1, message_id=1),
            resume_after(7, session_id=1, message_id=1),
            ask(8, "store.purge", session_ids=[1]),
            confirm(9, "store.purge", session_ids=[1]),
            ask(10, "session.resume", session_id=1, message_id=1),
            ask(11, "chat", question="How is git installed?", client_token="t"),
            ask(12, "session.list"),
        ],
    ),
    "answer_interrupted": Conversation(
        [
            ask(1, "session.get", session_id=1),
            ask(2, "session.resume", session_id=1, message_id=1),
            ask(3, "chat", question="How is git installed?", client_token="t"),
            ask(4, "session.resume", session_id=1, message_id=1),
            ask(5, "chat", question="How is git installed?", client_token="t"),
        ],
        around=cut_off_answer,
    ),
    "store_newer": Conversation(
        [ask(1, "ping"), ask(2, "version"), ask(3, "doctor")], around=of_newer_format
    ),
    "store_damaged": Conversation(
        [ask(1, "ping"), ask(2, "doctor"), ask(3, "kb.create", slug="no")], around=damaged
    ),
    "store_garbled": Conversation([ask(1, "ping")], around=of_garbage),
    "store_a_file": Conversation([ask(1, "ping")], around=a_file),
    "store_locked": Conversation([ask(1, "ping"), ask(2, "doctor")], around=held),
    "protocol": Conversation([], {"protocol": "9"}, in_memory=False, exit=1),
    "scope_unknown": Conversation([], {"scopes": "doc:reed"}, in_memory=False, exit=1),
    "internal": Conversation(
        [
            ask(1, "raise"),
            ask(2, "misshape"),
            ask(3, "emit"),
            ask(4, "subtract", minuend=42, subtrahend=23),
        ],
        registry=toys.registry(),
    ),
}
