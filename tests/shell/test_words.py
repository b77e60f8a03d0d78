"""Errors use the words of the person who typed the command."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from kbproc.base.errors import ERRORS
from kbproc.methods.all import registry
from kbproc.methods.calls.flags import flags_of
from kbproc.methods.calls.registry import ALIASES
from kbproc.surfaces.shell.words import Words, approval
from tests.kit.shell import Run, in_process, refused, write_docs

LACKING = [
    method
    for method in registry().methods.values()
    if any(flag.required for flag in flags_of(method))
]
WIRE = re.compile(r"\$\.|params|`|timeout_ms|client_token|\b(?:doc|kb|note|agent)\.[a-z]")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    return in_process(tmp_path, monkeypatch, capsys)


def test_what_is_missing_is_named_as_it_is_typed(run: Run, subtests: pytest.Subtests) -> None:
    run("kb", "create", "books")
    for method in LACKING:
        with subtests.test(method.name):
            command = method.name.replace(".", " ")
            error = refused(run, *command.split())
            first = next(flag for flag in flags_of(method) if flag.required)
            typed = str(first.param).upper() if first.positional else first.name
            assert re.fullmatch(rf"{command} needs an? {typed}\.", error["message"]), error
            assert error["field"] == typed
            assert error["hint"].startswith(f"Usage: kbproc {command}")
            assert not WIRE.search(error["message"] + error["hint"])


def test_a_command_says_what_it_needs(run: Run) -> None:
    error = refused(run, "search")
    assert error["message"] == "search needs a QUERY."
    assert error["hint"] == "Usage: kbproc search QUERY [FLAGS]. See kbproc search --help."
    assert refused(run, "doc", "create", "--title", "t")["message"] == "doc create needs a --text."


def test_one_of_many_is_named_by_its_place(run: Run) -> None:
    items = '[{"title": "A", "text": "x"}, {"title": "B", "text": " "}]'
    code, out, err = run("doc", "create", "--documents", items, "--format", "text")
    assert code == 3 and "Traceback" not in err
    assert err.splitlines()[:2] == [
        "Error (operation.partial): 1 of 2 documents could not be added.",
        "  --documents[1].text is blank.",
    ]
    assert "  --documents[1].text is blank." in err.splitlines()
    assert "A" in out and "$.params" not in out + err
    error = refused(run, "doc", "create", "--documents", '[{"titel": "A", "text": "x"}]')
    assert error["field"] == "--documents[0].titel"
    error = refused(run, "doc", "create", "--documents", items, "--title", "x")
    assert error["message"] == "--title and --documents exclude each other."
    assert refused(run, "doc", "create")["message"] == "doc create needs a --title."


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["list", "--limit", "many"], "--limit takes a whole number."),
        (["list", "--limit", "0"], "--limit must be at least 1."),
        (
            ["kb", "get", "UP"],
            "SLUG is 'UP': it takes 2–64 lower-case letters, digits and hyphens.",
        ),
        (["doc", "get", "x"], "ID takes a whole number."),
        (
            ["list", "--tags", "a\u200bb"],
            "--tags holds the character U+200B, which names may not hold.",
        ),
    ],
)
def test_a_wrong_value_is_named_by_its_flag(run: Run, argv: list[str], message: str) -> None:
    assert refused(run, *argv)["message"] == message


@pytest.mark.parametrize(
    ("argv", "hint"),
    [
        (["doc", "get", "99"], "See kbproc list for the documents there are."),
        (["kb", "delete", "default"], "Delete its documents with kbproc doc delete instead."),
        (["doc", "wait", "--ids", "1", "--timeout", "0"], None),
    ],
)
def test_other_commands_are_named_as_the_shell_says_them(
    run: Run, argv: list[str], hint: str | None
) -> None:
    error = refused(run, *argv)
    assert not WIRE.search(error["hint"])
    assert hint in (None, error["hint"])


def test_what_an_answer_says_of_itself_names_commands_too(run: Run) -> None:
    run("agent", "create", "gitea")
    argv = ["note", "search", "x", "--agent", "gitea"]
    assert "kbproc note put writes one" in run(*argv, "--format", "text")[2]
    assert "kbproc note put writes one" in json.loads(run(*argv)[1])["meta"]["hint"]


def test_a_call_speaks_as_the_wire_does(run: Run) -> None:
    assert refused(run, "call", "search")["message"] == "$.params.query is required."


# ---------------------------------------------------------------------- approval


def test_exit_10_names_the_way_to_approve(run: Run, tmp_path: Path) -> None:
    run("add", str(write_docs(tmp_path)))
    error = refused(run, "doc", "delete", "1")
    assert (error["exit_code"], "retry" in error) == (10, False)
    line = error["hint"].partition(": ")[2]
    assert line.startswith("kbproc doc delete 1 --confirm ")
    code, out, _ = run(*shlex.split(line)[1:])
    assert (code, json.loads(out)["data"]["ids"]) == (0, [1])


def test_the_way_to_approve_keeps_to_the_store(run: Run, tmp_path: Path) -> None:
    store = str(tmp_path / "other")
    run("kb", "create", "books", "--store", store)
    line = refused(run, "kb", "delete", "books", "--store", store)["hint"].partition(": ")[2]
    assert run(*shlex.split(line)[1:])[0] == 0


def test_y_is_yes(run: Run) -> None:
    run("kb", "create", "books")
    assert run("kb", "delete", "books", "-y")[0] == 0


# -------------------------------------------------------------------- misspelt words


@pytest.mark.parametrize(
    ("argv", "corrected"),
    [
        (["serach", "x"], ["search", "x"]),
        (["kb", "lst"], ["kb", "list"]),
        (["--format", "json", "kb", "lst"], ["--format", "json", "kb", "list"]),
        (["list", "--limt", "3"], ["list", "--limit", "3"]),
        (["list", "--limt=3"], ["list", "--limit=3"]),
    ],
)
def test_a_misspelt_command_line_comes_back_corrected(
    run: Run, argv: list[str], corrected: list[str]
) -> None:
    retry = refused(run, *argv)["retry"]
    assert retry["argv"] == ["kbproc", *corrected]
    assert run("call", retry["method"], json.dumps(retry["params"]))[0] == 0
    assert run(*retry["argv"][1:])[0] == 0


@pytest.mark.parametrize(
    "argv",
    [
        ["gossip", "hello"],
        ["kb", "zz"],
        ["knowledge", "zz"],
        ["list", "--nonsense"],
        ["doc", "delete", "1", "--yse"],
        ["serach", "--limt"],
    ],
)
def test_nobody_is_led_astray(run: Run, argv: list[str]) -> None:
    error = refused(run, *argv)
    assert "retry" not in error
    assert "--yes" not in error["hint"] and "kbproc schema" not in error["hint"]


def test_a_misspelt_profile_comes_back_corrected(run: Run) -> None:
    run("profile", "save", "work", "--format", "json")
    retry = refused(run, "kb", "list", "--profile", "wrok")["retry"]
    assert retry["argv"] == ["kbproc", "kb", "list", "--profile", "work"]


def test_aliases_are_commands(run: Run) -> None:
    methods = registry().methods
    for name in methods:
        noun, dot, verb = name.partition(".")
        for alias in [alias for alias, target in ALIASES.items() if dot and target == verb]:
            if f"{noun}.{alias}" not in methods:
                assert run(noun, alias, "--help")[1] == run(noun, verb, "--help")[1]
    assert run("knowledge", "add", "--help")[1] == run("knowledge", "store", "--help")[1]


def test_valid_values_are_all_there_are_the_nearest_first(run: Run) -> None:
    values = refused(run, "list", "--limt", "3")["valid_values"]
    assert values[0] == "--limit" and {"--tags", "--kb", "--format"} <= set(values)
    line = run("list", "--limt", "3", "--format", "text")[2].splitlines()[1]
    assert re.fullmatch(r"Valid values: --limit, .* and \d+ more", line)


# ------------------------------------------------------------------ where to read on


def test_every_error_has_a_page(run: Run) -> None:
    pages = {type: run("help", type) for type in ERRORS}
    assert [
        (type, code, out)
        for type, (code, out, _) in pages.items()
        if code or type not in out or ERRORS[type].hint not in " ".join(out.split())
    ] == []


def test_a_hint_names_a_switch_as_it_is_typed(run: Run, tmp_path: Path) -> None:
    path = str(tmp_path / "all.ndjson")
    run("doc", "create", "--title", "One", "--text", "first words", "--source-id", "one")
    run("store", "export", path)
    run("doc", "update", "1", "--text", "other words")
    code, out, _ = run("store", "import", path)
    assert (code, "; --replace takes the file's." in json.loads(out)["meta"]["hint"]) == (0, True)


# ------------------------------------------------------------ the translation by itself


@pytest.mark.parametrize(
    "text, typed",
    [
        ("$.params.query is blank.", "QUERY is blank."),
        ("$.params.tags[2] is long.", "--tags is long."),
        ("$.params.nothing.at_all is long.", "nothing.at_all is long."),
        ("Ask again with include_superseded: true.", "Ask again with --include-superseded."),
        ("Set include_superseded, too.", "Set --include-superseded, too."),
        ("doc.get shows it.", "kbproc info shows it."),
        ("doc.ingest reads it.", "kbproc add reads it."),
        ("Read kbproc doc.get first.", "Read kbproc doc.get first."),
        (
            "doc.getter and x.doc.get and doc.get/x stay.",
            "doc.getter and x.doc.get and doc.get/x stay.",
        ),
        ("timeout_ms passed.", "--timeout passed."),
        ("my_timeout_ms stays.", "my_timeout_ms stays."),
        ("limit: 3", "limit: 3"),
    ],
)
def test_wire_words_become_typed_words(text: str, typed: str) -> None:
    words = Words(registry(), registry().methods["search"])
    assert words.text(text) == typed
    assert words.of_meta({"hint": text, "notice": [text], "count": 1}) == {
        "hint": typed,
        "notice": [typed],
        "count": 1,
    }


def test_a_plan_is_approved_by_the_same_command() -> None:
    method = registry().methods["doc.delete"]
    hint = approval(method, {"ids": [1, 2]}, "hash", ["--store", "/a b"])
    command = shlex.split(hint.partition(" runs: ")[2])
    assert command[:3] == ["kbproc", "doc", "delete"]
    assert command[-2:] == ["--store", "/a b"]
    assert command[command.index("--confirm") + 1] == "hash"
    long = approval(method, {"ids": list(range(10**6, 10**6 + 900))}, "hash", [])
    assert long.endswith("runs: the same command with --confirm hash")
