"""Imports libraries as if there were no modules that they hardly ever use.

Python imports such a module when code first uses it. Call these functions while no other thread
imports anything.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any


def import_lean() -> None:
    """Imports msgspec and pathlib, which every process needs.

    `typing` has all that msgspec takes of typing_extensions, which brings `inspect`, `ast` and a
    dozen others; the rest are imported when code first uses them. Together that is a third of the
    time to a first line.
    """
    with _without("typing_extensions", "platform", "textwrap", "urllib.parse", "msgspec.inspect"):
        import pathlib  # noqa: F401

        import msgspec  # noqa: F401


def import_for_a_command() -> None:
    """Imports logging without what prints a traceback, and shutil without kinds of archives."""
    with _without("traceback", "bz2", "lzma"):
        import logging  # noqa: F401
        import shutil  # noqa: F401


def import_validator() -> None:
    """Imports jsonschema_rs without email.utils, which reads the date of its build."""
    with _without("email.utils"):
        import jsonschema_rs  # noqa: F401


def import_completion() -> None:
    """Imports shtab without importlib.metadata, which reads shtab's own version.

    shtab imports logging, which needs no traceback for that.
    """
    with _without("importlib.metadata", "traceback"):
        import shtab  # noqa: F401


@contextlib.contextmanager
def _without(*modules: str) -> Iterator[None]:
    spared = {name: SPARED[name] for name in modules if name not in sys.modules}
    sys.modules.update(spared)  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in spared:
            del sys.modules[name]


def _quoted(data: bytes) -> str:
    from urllib.parse import quote_from_bytes

    return quote_from_bytes(data)


class _Later:
    """Stands for a module that is imported when more than is `members` is asked of it."""

    def __init__(self, module: str, **members: object) -> None:
        self._module = module
        vars(self).update(members)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # the import itself asks
            raise AttributeError(name)
        return getattr(__import__(self._module, fromlist=[name]), name)


SPARED = {
    "typing_extensions": None,
    "platform": _Later("platform", system=lambda: os.uname().sysname),  # uuid asks
    "textwrap": _Later("textwrap"),
    "msgspec.inspect": _Later("msgspec.inspect"),  # for schemas
    "urllib.parse": _Later("urllib.parse", quote_from_bytes=_quoted),  # pathlib, for a URI
    "traceback": _Later("traceback"),
    "bz2": None,
    "lzma": None,
    "importlib.metadata": _Later(
        "importlib.metadata", version=lambda name: "", PackageNotFoundError=ImportError
    ),
    "email.utils": _Later("email.utils", parsedate_to_datetime=lambda text: None),
}
