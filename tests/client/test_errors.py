"""Errors as exceptions: the class follows from the exit code, and members from the server."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from kbproc.base.errors import ERRORS
from kbproc.client import errors


@pytest.mark.parametrize("type", ERRORS)
def test_every_error_has_the_class_of_its_exit_code(type: str) -> None:
    row = ERRORS[type]
    by_type = errors.of({"message": "m", "data": {"type": type}})
    by_exit = errors.of({"message": "m", "data": {"type": "new.type", "exit_code": row.exit}})
    assert by_type.exit_code == by_exit.exit_code == row.exit
    assert isinstance(by_type, type_of(row.exit))
    assert isinstance(by_exit, type_of(row.exit))


def type_of(exit: int) -> Any:
    return [
        errors.BadRequest,
        errors.Failed,
        errors.Partial,
        errors.Timeout,
        errors.NotFound,
        errors.NotAllowed,
        errors.Conflict,
        errors.LimitReached,
        errors.Cancelled,
        errors.NeedsPerson,
    ][exit - 1]


@pytest.mark.parametrize("error", [{}, {"message": "m"}, {"message": "m", "data": None}])
def test_an_error_without_data_is_an_internal_one(error: dict[str, Any]) -> None:
    one = errors.of(error)
    assert (one.type, one.message) == ("internal.error", error.get("message", ""))
    assert one.detail == {}


def test_an_overload_is_told_from_other_limits() -> None:
    overload = errors.of({"data": {"type": "server.overloaded"}})
    assert isinstance(overload, errors.Overloaded)


def test_an_error_survives_a_process_boundary() -> None:
    data = {"type": "resource.conflict", "message": "m", "detail": {"revision": 3}, "hint": "h"}
    one = pickle.loads(pickle.dumps(errors.of({"data": data})))
    assert isinstance(one, errors.Conflict)
    assert (one.type, one.detail, one.hint, one.told) == (data["type"], {"revision": 3}, "h", data)


def test_a_person_reads_the_nearest_values_and_the_hint() -> None:
    data = {"type": "t", "message": "m", "valid_values": list(range(12)), "hint": "Do this."}
    assert str(errors.of({"data": data})) == f"t: m Valid: {', '.join('0123456789')}. Do this."


@pytest.mark.parametrize(
    "type, hint",
    [
        ("auth.insufficient_scope", "add it to scopes= or root="),
        ("path.outside_root", "add it to scopes= or root="),
        ("input.invalid_params", "add it to --scopes or --root"),
    ],
)
def test_flags_of_the_server_become_arguments_of_the_client(type: str, hint: str) -> None:
    error = {"data": {"type": type, "hint": "add it to --scopes or --root"}}
    assert errors.of(error).hint == hint


def test_a_line_that_is_not_the_protocol_is_shown_cut_and_readable() -> None:
    short, long = errors.not_the_wire(b"\xff hi", "no JSON"), errors.not_the_wire(b"x" * 101, "it")
    assert "said no JSON: “\ufffd hi”" in short.message
    assert f"“{'x' * 100}…”" in long.message
    assert not short.retryable
