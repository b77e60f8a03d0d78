"""`make changed` runs the tests that a change touches: the nearest first, and the goldens."""

from __future__ import annotations

import pytest

from tools.changed import MOST_FILES, chosen, folder_of, main, method_of

GOLDENS = "tests/conversations/test_golden.py"


@pytest.mark.parametrize(
    ("file", "tests"),
    [
        ("kbproc/engine/store/lane.py", {"tests/store/test_lane.py", GOLDENS}),
        ("kbproc/knowledge/history/revert.py", {"tests/history/test_revert_entries.py", GOLDENS}),
        ("kbproc/contract/judge.py", {"tests/contract/test_servers.py"}),
        ("kbproc/surfaces/mcp/results.py", {"tests/mcp/test_transcripts.py"}),
        ("tests/kit/golden.py", {"tests/repo/test_help.py", "tests/hooks/test_context.py"}),
        ("tests/text/test_new.py", {"tests/text/test_new.py"}),
        ("golden/test_golden/test_toys[internal].txt", {f"{GOLDENS}::test_toys[internal]"}),
        (
            "golden/test_golden/test_over_pipes[protocol].txt",
            {f"{GOLDENS}::test_over_pipes[protocol]"},
        ),
        (
            "docs/undo.md",
            {"tests/repo/test_pages.py", "tests/repo/test_shown.py::test_commands[undo]"},
        ),
        (
            "kbproc/methods/doc/get.py",
            {
                "tests/calls/test_examples.py",
                "tests/documents/test_documents.py",
                f"{GOLDENS}::test_in_memory[documents]",
            },
        ),
    ],
)
def test_a_change_calls_for_its_tests(file: str, tests: set[str]) -> None:
    names, _ = chosen([file])
    assert tests <= set(names)
    assert len(names) == len(set(names))
    assert (GOLDENS in names) == (GOLDENS in tests)


def test_a_module_that_all_import_calls_for_a_part_of_the_tests() -> None:
    names, more = chosen(["kbproc/base/errors.py"])
    assert len(names) <= MOST_FILES + 4 and more > 0
    assert names[2].startswith("tests/base/")


def test_cases_of_a_file_that_runs_whole_are_left_to_it() -> None:
    names, _ = chosen(["kbproc/methods/doc/get.py", GOLDENS])
    assert GOLDENS in names
    assert not [name for name in names if name.startswith(f"{GOLDENS}::")]


def test_a_package_has_a_folder_of_tests() -> None:
    assert folder_of("kbproc/engine/store/sql/worker.py") == "tests/store"
    assert method_of("kbproc/methods/store/import_.py") == "store.import"
    assert method_of("kbproc/methods/calls/run.py") is None


def test_a_base_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nonsense"]) == 2
    assert "BASE=nonsense is no commit" in capsys.readouterr().err
