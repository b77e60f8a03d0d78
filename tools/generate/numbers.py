"""Writes numbers that the program knows into sentences of the docs.

A template is a part of a sentence in which names stand for numbers: `{tools}` as digits,
`{tools:word}` as a word, `{tools:Word}` as the first of a sentence, `{tools:plain}` as digits
without commas; `{day:date}` stands for a date, `{server:version}` for numbers with dots. `make
generate` writes the numbers anew, and its `--check`, which `make check` runs, finds one that
differs. A template that fits no sentence, or two, is an error: the template follows the sentence.
A measured number has no template: it stands on a page that a file of results makes, or names its
evidence.

`python -m tools.generate.numbers` lists the lines with numbers that nothing covers as yet.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from kbproc.base.clients import HOOKS, SERVERS
from kbproc.base.errors import ERRORS
from kbproc.base.settings import config
from kbproc.client import flights
from kbproc.client.in_flight import MOST_DEATHS
from kbproc.engine.cluster.jetstream.link import OLDEST
from kbproc.engine.cluster.work import lending, messages, node, offers
from kbproc.engine.embedding import parsers
from kbproc.engine.models import weights
from kbproc.engine.models.answering import extractive
from kbproc.engine.models.interface import DEFAULT_MODEL
from kbproc.engine.projections.vectors.view import FLAT_LIMIT
from kbproc.engine.sources.packs import SMALL_BYTES
from kbproc.engine.sources.parse import archive, notebook, ocr
from kbproc.engine.sources.parse.chats import turns
from kbproc.engine.sources.parse.code import LANGUAGES
from kbproc.engine.sources.parse.pool import ParserPool
from kbproc.engine.sources.parse.worker import BYTES_IN_TIME
from kbproc.engine.store import hook_log
from kbproc.engine.store.folder import FORMAT
from kbproc.engine.store.sql import query
from kbproc.engine.store.store import BESIDE_CHUNKS
from kbproc.knowledge.agents.notes import diff, files, note
from kbproc.knowledge.cluster import purging
from kbproc.knowledge.documents import content
from kbproc.knowledge.history import feed
from kbproc.knowledge.search import duplicates
from kbproc.knowledge.sessions import retrieval
from kbproc.knowledge.transfer.incoming.run import MOST_IDS
from kbproc.knowledge.transfer.portable import VERSION
from kbproc.knowledge.watching import folder
from kbproc.knowledge.watching.watch import MOST_FOLDERS
from kbproc.methods.all import registry
from kbproc.methods.calls import describe
from kbproc.methods.calls.schemas import params_schema
from kbproc.methods.doc.ingest import MAX_FILE_BYTES
from kbproc.methods.events.revert import MOST_RECORDS
from kbproc.surfaces.hooks import deadline
from kbproc.surfaces.hooks.options import TOKENS
from kbproc.surfaces.mcp import declared, protocol, results, serve, toolbox
from kbproc.surfaces.page import server
from kbproc.surfaces.sharing import owner, takeover
from kbproc.surfaces.shell.cli import INTERRUPTED
from kbproc.surfaces.wire import connection

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "SECURITY.md", "CHANGELOG.md", "llms.txt", "docs", "plugin/skills")
_WORDS = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
    *("eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen"),
)


def _listed(name: str) -> str:
    """Returns a set of MCP's tools as a client lists it, without the scope `admin`, as JSON."""
    whole = declared.tools(registry())
    entries = declared.methods(registry()) if name == "all" else whole["tools"]
    names = list(entries) if name == "all" else whole["sets"][name]
    tools = [entries[tool]["tool"] for tool in names if entries[tool]["scope"] != "admin"]
    return json.dumps(tools, ensure_ascii=False, separators=(",", ":"))


def _tokens(text: str) -> int:
    """Returns an estimate of a text's tokens: four characters each."""
    return round(len(text) / 4)


def _bound(method: str, param: str, keyword: str) -> Any:
    """Returns a bound or the default of a method's param, as its schema states it."""
    schema = params_schema(registry().find(method))["properties"][param]
    kinds = [schema, *schema.get("anyOf", ())]
    return next(kind[keyword] for kind in kinds if keyword in kind)


def _parse_seconds() -> int:
    return int(inspect.signature(ParserPool).parameters["timeout_s"].default)


def _described(*, full: bool) -> str:
    methods = registry()
    whole = describe.of_registry(methods) if full else describe.index(methods)
    return json.dumps(whole, ensure_ascii=False, separators=(",", ":"), default=str)


def _weighed(*names: str) -> int:
    """Returns the sum of sizes that `python -m bench.sizes` has measured, in megabytes."""
    sizes = json.loads((ROOT / "bench/sizes.json").read_text(encoding="utf-8"))
    return sum(int(sizes[name]) for name in names)


# Name → the number or the date that stands for it.
FACTS: dict[str, Callable[[], float | str]] = {
    "download_mb": lambda: weights.CARRIERS[DEFAULT_MODEL].megabytes + weights.RUNTIME_MEGABYTES,
    "weights_mb": lambda: weights.CARRIERS[DEFAULT_MODEL].megabytes,
    "runtime_mb": lambda: weights.RUNTIME_MEGABYTES,
    "words_mb": lambda: _weighed("words"),
    "all_mb": lambda: _weighed("meaning", "model"),
    "tools": lambda: len(declared.SETS["default"]),
    **{
        f"{name}_tokens": lambda name=name: _tokens(_listed(name))  # type: ignore[misc]
        for name in (*declared.SETS, "all")
    },
    "instruction_tokens": lambda: _tokens(serve.INSTRUCTIONS),
    "mcp_clients": lambda: len(SERVERS),
    "hook_clients": lambda: len(HOOKS),
    "prompt_tokens": lambda: TOKENS["prompt"],
    "tool_tokens": lambda: TOKENS["tool"],
    "tool_ms": lambda: deadline.TOOL_DEADLINE_MS,
    "start_tokens": lambda: TOKENS["session-start"],
    "deadline_ms": lambda: deadline.DEADLINE_MS,
    "record_seconds": lambda: deadline.RECORD_DEADLINE_MS // 1000,
    "hook_log_kib": lambda: hook_log.MOST_BYTES >> 10,
    "mcp_version": lambda: protocol.MODERN,
    "mcp_first": lambda: protocol.LEGACY[0],
    "mcp_last": lambda: protocol.LEGACY[-1],
    "deaths": lambda: MOST_DEATHS,
    "crashes": lambda: takeover.MOST_CRASHES,
    "argument_mib": lambda: toolbox.MOST_TEXT >> 20,
    "argument_levels": lambda: toolbox.MOST_DEPTH,
    "hit_characters": lambda: declared.HITS["text_chars"],
    "view_characters": lambda: results.LENGTHS["doc.get"],
    "download_bytes": lambda: results.LENGTHS["doc.download"],
    "listed_documents": lambda: results.MOST_LISTED["doc.ingest"],
    "actor_characters": lambda: serve.LONGEST_NAME,
    "drain_seconds": lambda: connection.DRAIN_SECONDS,
    "background_seconds": lambda: owner.PATIENCE_SECONDS,
    "interrupted": lambda: INTERRUPTED,
    "watched_kib": lambda: content.LARGE_BYTES >> 10,
    "inside_kib": lambda: content.SHORT_BYTES >> 10,
    "unread_mib": lambda: flights.HELD >> 20,
    "most_unread_mib": lambda: flights.MOST_HELD >> 20,
    "events_mib": lambda: feed.MOST_BYTES >> 20,
    "exit_timeout": lambda: ERRORS["operation.timeout"].exit,
    "exit_not_found": lambda: ERRORS["resource.not_found"].exit,
    "exit_profile": lambda: ERRORS["profile.not_found"].exit,
    "exit_strict": lambda: ERRORS["operation.failed"].exit,
    "exit_confirmation": lambda: ERRORS["input.confirmation_required"].exit,
    "exit_exists": lambda: ERRORS["resource.already_exists"].exit,
    "exit_type": lambda: ERRORS["input.unsupported_type"].exit,
    "exit_partial": lambda: ERRORS["operation.partial"].exit,
    "renamed_mib": lambda: diff.MOST_COMPARED >> 20,
    "note_entries": lambda: files.MOST_LOOKED_AT,
    "languages": lambda: len(set(LANGUAGES.values())),
    "exact_chunks": lambda: FLAT_LIMIT,
    "in_flight": lambda: config.MAX_IN_FLIGHT,
    "line_mib": lambda: config.MAX_LINE_BYTES >> 20,
    "file_mib": lambda: MAX_FILE_BYTES >> 20,
    "brief_kb": lambda: describe.BRIEF_BYTES >> 10,
    "brief_tokens": lambda: _rounded(describe.BRIEF_BYTES // 4, 100),
    "index_tokens": lambda: _rounded(_tokens(_described(full=False)), 100),
    "full_tokens": lambda: _rounded(_tokens(_described(full=True)), 10_000),
    "reverted": lambda: MOST_RECORDS,
    "documents": lambda: _bound("doc.create", "documents", "maxItems"),
    "sql_rows": lambda: _bound("sql.query", "limit", "maximum"),
    "sql_default": lambda: _bound("sql.query", "limit", "default"),
    "sql_seconds": lambda: _bound("sql.query", "timeout_ms", "default") // 1000,
    "sql_most_seconds": lambda: _bound("sql.query", "timeout_ms", "maximum") // 1000,
    "sql_gib": lambda: query.MEMORY_BYTES >> 30,
    "sql_mib": lambda: query.MOST_BYTES >> 20,
    "entry_characters": lambda: _bound("knowledge.store", "body", "maxLength"),
    "confidence": lambda: _bound("knowledge.store", "confidence", "default"),
    "compared_entries": lambda: duplicates.MOST_ENTRIES,
    "note_kib": lambda: note.MOST_BYTES >> 10,
    "watched_folders": lambda: MOST_FOLDERS,
    "archive_files": lambda: archive.MAX_FILES,
    "archive_mib": lambda: archive.MAX_READ >> 20,
    "parse_seconds": _parse_seconds,
    "parse_mb": lambda: BYTES_IN_TIME // 10**6,
    "ten_mb_seconds": lambda: _parse_seconds() * 10**7 // BYTES_IN_TIME,
    "output_characters": lambda: notebook.OUTPUT_CHARS,
    "ocr_minutes": lambda: ocr.OCR_SECONDS // 60,
    "ocr_pictures": lambda: ocr.MAX_PICTURES,
    "head_characters": lambda: turns.HEAD_CHARS,
    "tail_characters": lambda: turns.TAIL_CHARS,
    "segment_characters": lambda: turns.SEGMENT_CHARS,
    "small_kib": lambda: SMALL_BYTES >> 10,
    "gathered_chunks": lambda: BESIDE_CHUNKS,
    "store_format": lambda: FORMAT,
    "export_version": lambda: VERSION,
    "mapped_ids": lambda: MOST_IDS,
    "exit_store": lambda: ERRORS["store.io"].exit,
    "near": lambda: duplicates.NEAR,
    "quoted_characters": lambda: extractive.LONGEST_WHOLE,
    "cite_bytes": lambda: retrieval.LONGEST_CITE,
    "request_seconds": lambda: server.REQUEST_SECONDS,
    "connections": lambda: server.MOST_CONNECTIONS,
    "settle_seconds": lambda: folder.SETTLE_S,
    "unsettled_seconds": lambda: folder.MOST_UNSETTLED_S,
    "poll_seconds": lambda: folder.POLL_S,
    "oldest_nats": lambda: ".".join(map(str, OLDEST)),
    "purge_seconds": lambda: purging.PATIENCE_S,
    "wait_seconds": lambda: node.WAITS_S,
    "longest_wait_seconds": lambda: 2 * node.WAITS_S,
    "wait_minutes": lambda: node.WAITS_IN_ALL_S // 60,
    "kept_chunks": lambda: offers.KEPT_CHUNKS,
    "job_texts": lambda: offers.TEXTS_IN_A_JOB,
    "unheard_seconds": lambda: offers.SILENT_S,
    "job_seconds": lambda: messages.ACK_WAIT_S,
    "job_minutes": lambda: messages.JOB_S // 60,
    "jobs": lambda: messages.MOST_JOBS,
    "job_tries": lambda: messages.TRIES,
    "parsers": lambda: parsers.PROCESSES,
    "lent_kib": lambda: parsers.LEAST_LENT_BYTES >> 10,
    "piece_kib": lambda: lending.PIECE_BYTES >> 10,
    "sql_params": lambda: _bound("sql.query", "params", "maxItems"),
    "sql_running": lambda: query.RUNNING,
    "sql_waiting": lambda: query.WAITING,
    "sql_characters": lambda: _bound("sql.query", "sql", "maxLength"),
}

# Page → parts of its sentences.
SENTENCES: dict[str, tuple[str, ...]] = {
    "README.md": (
        "once: search by meaning, too; {download_mb} MB come",
        "| `pip install .` | {words_mb} MB |",
        "| `kbproc model install` | {all_mb} MB in all,",
        "Up to {exact_chunks} chunks every vector is compared",
        "An agent sees {tools:word} tools (about {default_tokens} tokens); two of these",
    ),
    "CHANGELOG.md": (
        "by meaning without torch: {download_mb} MB come",
        "for {mcp_version:date} and the versions that initialize",
        "every method in {tools:word} tools of some {default_tokens} tokens",
        "`mcp install` knows {mcp_clients:word} clients",
        "into the prompts of {hook_clients:word} agents, cited and within {prompt_tokens} tokens",
        "text and code of {languages} languages",
    ),
    "SECURITY.md": ("A plain text of at most {inside_kib} KiB that a client sends",),
    "docs/hooks.md": (
        "(search.md#does-the-store-know) | {prompt_tokens} tokens |",
        "documents that changed since the last session here | {start_tokens} tokens |",
        "what was said when the error came before | {tool_tokens} tokens |",
        "a process that has the store open, and within {tool_ms} ms: after that it",
        "before an act it stays {tool_ms} |",
        "| `--tokens` | {prompt_tokens} |",
        "| `--start-tokens` | {start_tokens} |",
        "| `--deadline-ms` | {deadline_ms:plain} |",
        "this may take up to {record_seconds} s |",
        "`hooks/log.ndjson` in the store, {hook_log_kib} KiB at most.",
    ),
    "docs/install.md": (
        "downloads {download_mb} MB: {weights_mb} MB of weights, and {runtime_mb} MB that run them",
    ),
    "docs/harness.md": (
        "{unread_mib} MiB of a stream's events wait for it",
        "a stream with {most_unread_mib} MiB unread then ends in",
    ),
    "docs/mcp.md": (
        "version {mcp_version:date}, and the versions from {mcp_first:date} to {mcp_last:date}",
        "A request during which {deaths:word} of them ended",
        "where {crashes:word} in a row fail soon after their start",
        "(up to {argument_mib} MiB, {argument_levels} levels deep)",
        "without null members, and texts of {hit_characters} characters on average",
        "`doc_view` reads {view_characters} characters at a time, "
        "`doc_download` {download_bytes} bytes;",
        "answers with counts and {listed_documents:word} documents.",
        "(`input_required` since {mcp_version:date}, whose",
        "Version {mcp_version:date} deprecates roots",
        "since {mcp_version:date}, in at most {actor_characters} characters.",
        "`kb_describe`, `kb_read`, `kb_call` | {default_tokens} |",
        "the first four of these | {minimal_tokens} |",
        "(an agent's notes), `search_knowledge` | {notes_tokens} |",
        "`agent_list`, `agent_invoke` | {weknora_tokens} |",
        "every method as `noun_verb` | {all_tokens} |",
        "The instructions are {instruction_tokens} tokens",
        "within reach of the {tools:word}.",
    ),
    "docs/protocol.md": (
        "At most {in_flight} requests may be in flight; one more is `server.overloaded`. "
        "A line over {line_mib} MiB is `input.too_large`",
        "with `method` it tells of one in at most {brief_kb} KB",
        "`doc.create` takes up to {documents} as `documents`",
        "while one of {watched_kib} KiB or more is read",
        "what is in flight gets {drain_seconds:word} seconds",
        "the exit code is 0 ({interrupted} for SIGINT)",
        "Work in the background gets {background_seconds} seconds:",
    ),
    "docs/events.md": (
        "since the record is longer than {events_mib} MiB or than a line may be",
        "A page ends at `limit` records or at {events_mib} MiB,",
        "until Ctrl-C (exit {interrupted}) or `--timeout SECONDS` (exit {exit_timeout}).",
    ),
    "docs/shell.md": (
        "One that is not there is an error (exit {exit_not_found}) that names",
        "is `profile.not_found` (exit {exit_profile}),",
        "`--strict` ends with exit {exit_partial} while any file fails",
        "of a type that is not read is a mistake (exit {exit_type}).",
        "`resource.not_found` (exit {exit_not_found}). A folder",
        "(`resource.already_exists`, exit {exit_exists}).",
    ),
    "docs/files.md": (
        "A file of more than {file_mib} MiB is a failure",
        "Reading a file may take {parse_seconds} s, and one of more than {parse_mb} MB",
        "as much longer as it is larger: {ten_mb_seconds} s for 10 MB.",
        "of a long output {output_characters} characters from its start and end",
        "At most {ocr_minutes:word} minutes and {ocr_pictures} pictures are spent on a file.",
        "At most {archive_files} files, {archive_mib} MiB and four levels are read",
    ),
    "docs/knowledge.md": (
        "a text of up to {entry_characters} characters",
        "0 to 100, {confidence} unless said",
        "The newest {compared_entries} entries are compared",
        "the share of common words, from {near} on",
    ),
    "docs/notes.md": (
        "At most {note_kib} KiB of UTF-8 that is not blank",
        "where more than {renamed_mib} MiB had to be compared nothing is",
        "where the sub-folders hold more than {note_entries} entries",
    ),
    "docs/watch.md": (
        "A file is read once it stays the same for {settle_seconds} s;",
        "one that never does, such as a log, every {unsettled_seconds} s or so.",
        "the folder is looked at every {poll_seconds:word} seconds",
        "At most {watched_folders} folders are watched on a machine",
    ),
    "docs/page.md": (
        "A request has {request_seconds} seconds, head and body. Of {connections} connections at",
    ),
    "docs/chats.md": (
        "the first {head_characters} and the last {tail_characters} characters are read",
        "of some {segment_characters} characters each",
    ),
    "docs/moving.md": (
        "A backup is a store of format {store_format}:",
        "Those up to {small_kib} KiB are in packs",
        "its `version` is {export_version}, and no other is read",
        "The answer maps the first {mapped_ids} ids",
    ),
    "docs/operations.md": (
        "`kbproc doctor --strict` | {exit_strict} if not |",
        "`kbproc ping` | {exit_store} where it can't be opened |",
    ),
    "docs/reliability.md": (
        "Sources up to {small_kib} KiB are appended to a source pack",
        "and beside further writes after {gathered_chunks}",
    ),
    "docs/sessions.md": (
        "nor of a block or a row of more than {quoted_characters} characters",
        "Of a citation longer than {cite_bytes} bytes",
    ),
    "docs/cluster.md": (
        "nats-server {oldest_nats:version} or later",
        "another one brings the purge to its end after {purge_seconds} seconds.",
        "The others wait for it: {wait_seconds} to {longest_wait_seconds} seconds since the last "
        "vector that they lacked came, {wait_minutes} minutes in all",
        "A node that has more than {kept_chunks} chunks to embed",
        "offers the oldest ones as jobs of {job_texts} texts",
        "one that says nothing for {job_seconds} seconds has lost its job",
        "once none has been heard for {unheard_seconds} seconds",
        "after {job_minutes} minutes at the latest, and {jobs} jobs lie there at most.",
        "A job that fails {job_tries:word} times is buried: `cluster status` counts those of the "
        "last {job_minutes} minutes",
        "A node reads {parsers:word} documents at a time",
        "those of {lent_kib} KiB and more go to workers",
        "in pieces of {piece_kib} KiB from",
    ),
    "docs/search.md": ("Up to {exact_chunks} chunks every vector is compared with the query's",),
    "docs/design.md": ("Above {exact_chunks} chunks meaning is searched by a graph",),
    "docs/undo.md": ("At most {reverted} records go back at once",),
    "docs/sql.md": (
        "`limit`: at most {sql_rows} rows, {sql_default} if left out",
        "| statement | {sql_characters} characters, {sql_params} parameters |",
        "| time | `timeout_ms`: {sql_seconds} s if left out, at most {sql_most_seconds} s |",
        "| memory | {sql_gib} GiB |",
        "| result | {sql_mib} MiB of JSON |",
        "| at once | {sql_running} running, {sql_waiting} waiting |",
    ),
    "plugin/skills/kbproc/SKILL.md": (
        "one JSON object with `title` and `text` a line, at most {documents} in one command",
        "an index of all of them (about {index_tokens} tokens)",
        "`kbproc describe NAME` one in short ({brief_tokens}).",
        "Exit {exit_partial} (`operation.partial`): what worked is kept.",
        "are listed again and make no exit {exit_partial};",
        "`input.confirmation_required` (exit {exit_confirmation}) is the user's",
        "`describe --full` is long (over {full_tokens} tokens)",
    ),
}


def _rounded(number: int, to: int) -> int:
    return number // to * to


@cache
def _value(name: str) -> float | str:
    return FACTS[name]()


_NAME = re.compile(r"\{(\w+)(?::(word|Word|plain|date|version))?\}")
_NUMERAL = r"((?:[\d,]*\d)?\.?\d+)"
_FORMS = {
    None: _NUMERAL,
    "plain": _NUMERAL,
    "date": r"(\d{4}-\d\d-\d\d)",
    "version": r"(\d+(?:\.\d+)+)",
}


def with_numbers(text: str, page: str) -> str:
    """Returns the page with its numbers; raises ValueError where a template doesn't fit once."""
    for template in SENTENCES.get(page, ()):
        text, count = _pattern(template).subn(lambda match, t=template: _filled(match, t), text)
        if count != 1:
            raise ValueError(
                f"{page}: the sentence {template!r} of tools/generate/numbers.py stands {count} "
                "times: rewrite the template as the page has it"
            )
    return text


def _pattern(template: str) -> re.Pattern[str]:
    """Returns an expression for the sentence, with any numbers and breaks of lines."""
    parts = _NAME.split(template)
    texts = [r"\s+".join(map(re.escape, part.split(" "))) for part in parts[::3]]
    numbers = [_FORMS.get(form, r"(\w+)") for form in parts[2::3]]
    pairs = zip(texts, [*numbers, ""], strict=True)
    return re.compile("".join(f"{text}{number}" for text, number in pairs))


def _filled(match: re.Match[str], template: str) -> str:
    """Returns the matched sentence with the numbers that hold, and its own breaks of lines."""
    whole, begin, pieces = match[0], match.start(), []
    at = 0
    for number, (name, form) in enumerate(_NAME.findall(template), 1):
        pieces += [whole[at : match.start(number) - begin], _written(_value(name), form)]
        at = match.end(number) - begin
    return "".join([*pieces, whole[at:]])


def _written(value: float | str, form: str) -> str:
    if isinstance(value, str):
        return value
    number = int(value) if value == int(value) else value
    if form == "plain":
        return f"{number}"
    if not form or isinstance(number, float) or number >= len(_WORDS):
        return f"{number:,}"
    return _WORDS[number].capitalize() if form == "Word" else _WORDS[number]


# ------------------------------------------------------------------ what is not covered

_GENERATED = re.compile(
    r"<!-- (?:generated|table): .*?<!-- end of [^>]*-->|```.*?```|<!--.*?-->", re.S
)
_CODE = re.compile(r"`[^`\n]*`|\]\([^)]*\)")
_NUMBER = re.compile(r"(?<![\w.#-])\.?\d[\d,.]*(?![\w.-]*[A-Za-z])")


def uncovered(page: str, text: str) -> list[tuple[int, str]]:
    """Returns the lines with numbers that no template, block or example covers."""
    for template in SENTENCES.get(page, ()):
        text = _pattern(template).sub(lambda match: re.sub(r"[^\n]", "x", match[0]), text)
    for kind in (_GENERATED, _CODE):
        text = kind.sub(lambda match: re.sub(r"[^\n]", "x", match[0]), text)
    lines = enumerate(text.splitlines(), 1)
    return [(number, line) for number, line in lines if _NUMBER.search(line)]


def pages() -> list[str]:
    """Returns the pages that state facts about the program, without generated and measured ones."""
    paths = [path for name in PAGES for path in [ROOT / name, *sorted((ROOT / name).rglob("*.md"))]]
    names = [str(path.relative_to(ROOT)) for path in paths if path.is_file()]
    others = ("docs/evidence/", "docs/reference.md", "docs/errors.md")
    return [name for name in names if not name.startswith(others)]


def main() -> int:
    for page in pages():
        for number, line in uncovered(page, (ROOT / page).read_text(encoding="utf-8")):
            sys.stdout.write(f"{page}:{number}: {line.strip()}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
