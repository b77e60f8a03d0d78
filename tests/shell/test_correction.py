"""A misspelt command line is corrected if one name is near, and in no other way."""

from __future__ import annotations

import pytest

from kbproc.base.errors import KbprocError
from kbproc.methods.all import registry
from kbproc.surfaces.shell.correction import correct


def corrected(
    argv: str, field: str, valid: list[str] | None, type: str = "input.unknown_method"
) -> list[str] | None:
    """Returns the command line of the retry; None without one."""
    error = KbprocError(type, "m", field=field, valid_values=valid)
    correct(error, argv.split(), registry())
    return None if error.retry is None else (error.retry.argv or [])[1:]


COMMANDS = ["doc list", "doc get", "doc create", "kb list", "kb get", "search"]
FLAGS = ["--limit", "--offset", "--query", "--yes"]


@pytest.mark.parametrize(
    "argv, field, valid, line",
    [
        ("serch heron", "serch", COMMANDS, "search heron"),
        ("doc lst --limit 3", "doc lst", COMMANDS, "doc list --limit 3"),
        ("kb gt default", "kb gt", COMMANDS, "kb get default"),
        ("create --title a --text b", "create", COMMANDS, "doc create --title a --text b"),
        ("search heron --limt 3", "--limt", FLAGS, "search heron --limit 3"),
        ("search heron --limt=3", "--limt", FLAGS, "search heron --limit=3"),
    ],
)
def test_the_nearest_name_takes_the_place_of_the_wrong_one(
    argv: str, field: str, valid: list[str], line: str
) -> None:
    kind = "input.invalid_params" if field.startswith("-") else "input.unknown_method"
    assert corrected(argv, field, valid, kind) == line.split()


@pytest.mark.parametrize(
    "argv, field, valid",
    [
        ("xyzzy heron", "xyzzy", COMMANDS),
        ("list", "list", COMMANDS),  # a verb of several nouns
        ("search -- serch", "serch", COMMANDS),
        ("doc delete 1 --ys", "--ys", FLAGS),
        ("serch heron --limt 3", "serch", COMMANDS),
        ("serch heron", "serch", None),
        ("serch heron", "heron", COMMANDS),
    ],
)
def test_a_guess_that_may_be_wrong_is_not_made(
    argv: str, field: str, valid: list[str] | None
) -> None:
    assert corrected(argv, field, valid) is None


def test_only_misspelt_names_are_corrected() -> None:
    assert corrected("serch heron", "serch", COMMANDS, "resource.not_found") is None


def test_a_misspelt_profile_is_corrected_where_it_stands() -> None:
    argv, kind = "search --profile wrk heron", "profile.not_found"
    assert corrected(argv, "--profile", ["work", "home"], kind) == (
        ["search", "--profile", "work", "heron"]
    )
    assert corrected("search heron --profile", "--profile", ["work"], kind) is None


def test_a_retry_has_the_params_of_the_corrected_line() -> None:
    error = KbprocError("input.unknown_method", "m", field="serch", valid_values=COMMANDS)
    correct(error, ["serch", "heron", "--limit", "3"], registry())
    assert error.retry is not None
    assert (error.retry.method, error.retry.params) == ("search", {"query": "heron", "limit": 3})
