"""Imports libraries as if there were no modules that they hardly ever use.

Python imports such a module when code first uses it. Call these functions while no other thread
imports anything.
"""

from __future__ import annotations

import contextlib
import os
import sys
from _thread import RLock
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

_BLAS_THREADS = "OPENBLAS_NUM_THREADS"
# Levels of a log; settings have the same names.
_LEVELS: tuple[str, ...] = ("debug", "info", "warning", "error")


def import_lean() -> None:
    """Imports msgspec and pathlib, which every process needs.

    `typing` has all that msgspec takes of typing_extensions, which brings `inspect`, `ast` and a
    dozen others; the rest are imported when code first uses them. Together that is a third of the
    time to a first line.
    """
    with _without(
        *("typing_extensions", "platform", "textwrap", "urllib.parse", "msgspec.inspect"),
        *("uuid", "decimal", "msgspec._json_schema", "msgspec.toml", "msgspec.yaml"),
    ):
        import pathlib  # noqa: F401

        import msgspec  # noqa: F401


def import_for_a_command() -> None:
    """Lets the modules that few commands use be imported when code first uses them.

    `import` finds a stand-in, which the module replaces then. Loggers wait for their first line.
    """
    for name, stand_in in _STAND_INS.items():
        sys.modules.setdefault(name, stand_in)  # type: ignore[arg-type]
    _StandIn.are_placed = True


def set_up_logging(level: str, set_up: Callable[[], None]) -> None:
    """Has the log set up when logging is imported, which no line below `level` does."""
    if isinstance(sys.modules.get("logging"), _StandIn):
        _LOGGING.after = set_up
        _Logger.silent = _LEVELS[: _LEVELS.index(level)]
    else:
        set_up()


def loaded(name: str) -> Any | None:
    """Returns a module; None if it is not imported, or has a stand-in."""
    module = sys.modules.get(name)
    return None if isinstance(module, _StandIn) else module


def import_validator() -> None:
    """Imports jsonschema_rs without email.utils, which reads the date of its build.

    Its first check looks for the type of decimals.
    """
    with _without("email", "email.utils", "jsonschema_rs.canonical", "decimal"):
        import jsonschema_rs

        jsonschema_rs.validator_for(True).is_valid(None)


def import_numpy() -> None:
    """Imports numpy without the texts of its documentation, its types and their signatures.

    That is half of the time. In a command it gets no threads of its own, which would take as long
    to begin as all else.
    """
    from kbproc.base.host import environment

    is_limited = _StandIn.are_placed and _BLAS_THREADS not in environment()
    if is_limited:
        os.putenv(_BLAS_THREADS, "1")
    try:
        _import_numpy()
    finally:
        if is_limited:
            os.unsetenv(_BLAS_THREADS)  # because child processes do more


def _import_numpy() -> None:
    with _without(
        *("numpy._core._add_newdocs", "numpy._core._add_newdocs_scalars", "numpy._typing"),
        *("ast", "ctypes", "inspect", "pickle", "platform", "textwrap", "weakref"),
    ):
        import numpy  # noqa: F401


def import_runtime() -> None:
    """Imports what runs an exported model: numpy, onnxruntime and tokenizers."""
    import_numpy()
    with _without("platform", "tokenizers.implementations"):
        import onnxruntime  # noqa: F401
        import tokenizers  # noqa: F401


def import_completion() -> None:
    """Imports shtab without importlib.metadata, which reads shtab's own version.

    shtab imports logging, which needs no traceback for that.
    """
    with _without("importlib.metadata", "traceback"):
        import shtab  # noqa: F401


@contextlib.contextmanager
def _without(*modules: str) -> Iterator[None]:
    spared: dict[str, Any] = {}
    for name in modules:
        if name not in sys.modules:
            members = SPARED[name]
            spared[name] = None if members is None else _StandIn(name, members)
    sys.modules.update(spared)
    try:
        yield
    finally:
        for name, stand_in in spared.items():
            if stand_in is not None:
                stand_in.forget()  # because another thread may have imported the stand-in
            if sys.modules.get(name) is stand_in:
                sys.modules.pop(name, None)


def _quoted(data: bytes) -> str:
    from urllib.parse import quote_from_bytes

    return quote_from_bytes(data)


def _late(module: str, name: str) -> Callable[..., Any]:
    """Returns a function that calls the one of that name, whose module it imports first."""

    def call(*args: Any, **more: Any) -> Any:
        return getattr(__import__(module, fromlist=[name]), name)(*args, **more)

    return call


class _StandIn:
    """Stands in `sys.modules` for a module until more than its `members` is asked of it.

    Then the module is imported and takes its place; a module that has the stand-in keeps it.
    """

    _importing = RLock()  # another thread must not drop the module that has just come
    after: Callable[[], None] | None = None  # called once the module is imported
    are_placed = False  # True in the process of a command

    def __init__(self, module: str, members: Mapping[str, object] = MappingProxyType({})) -> None:
        self._module = module
        self._members = members
        vars(self).update(members)

    def forget(self) -> None:
        """Drops the members, so that all is asked of the module."""
        for name in self._members:
            vars(self).pop(name, None)

    def __getattr__(self, name: str) -> Any:
        # The import itself asks for such names, and for the path before it imports a submodule.
        if name.startswith("__") and not (name == "__path__" and self is _LOGGING):
            raise AttributeError(name)
        with self._importing:
            if loaded(self._module) is None:
                sys.modules.pop(self._module, None)
            module = __import__(self._module, fromlist=[name])
            after, self.after = self.after, None
        if after is not None:
            after()
        return getattr(module, name)


class _Logger:
    """Stands for a logger of the module logging, and imports it with the first line to write."""

    silent = _LEVELS[:2]

    def __init__(self, name: str) -> None:
        self._name = name

    def _write(self, level: str, *args: Any, **more: Any) -> None:
        if loaded("logging") is not None or level not in self.silent:
            getattr(self._real, level)(*args, **more)

    def debug(self, *args: Any, **more: Any) -> None:
        self._write("debug", *args, **more)

    def info(self, *args: Any, **more: Any) -> None:
        self._write("info", *args, **more)

    @property
    def _real(self) -> Any:
        import logging

        return logging.Logger.manager.getLogger(self._name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


# Ways to train a tokenizer; an exported model has one.
_NO_IMPLEMENTATIONS = dict.fromkeys(
    (
        "BertWordPieceTokenizer",
        "ByteLevelBPETokenizer",
        "CharBPETokenizer",
        "SentencePieceBPETokenizer",
        "SentencePieceUnigramTokenizer",
    )
)


class _NoValue:
    """The type of UUIDs and decimals, which no value that kbproc encodes or decodes is."""

    unknown = None


# Module → the members that an import of a library asks of it; None: the library does without it.
SPARED: dict[str, dict[str, object] | None] = {
    "typing_extensions": None,
    "platform": {"system": lambda: os.uname().sysname},  # uuid asks
    "textwrap": {},
    "msgspec.inspect": {},  # for schemas
    "urllib.parse": {"quote_from_bytes": _quoted},  # pathlib, for a URI
    "traceback": {},
    "uuid": {"UUID": _NoValue, "SafeUUID": _NoValue},
    "decimal": {"Decimal": _NoValue},
    "msgspec._json_schema": {
        name: _late("msgspec._json_schema", name) for name in ("schema", "schema_components")
    },
    "msgspec.toml": {},
    "msgspec.yaml": {},
    "jsonschema_rs.canonical": {},
    "email": {},
    "email.utils": {"parsedate_to_datetime": lambda text: None},
    "ast": {},
    "ctypes": {},
    "inspect": {"signature": lambda function: None, "cleandoc": lambda text: text},
    "numpy._core._add_newdocs": {},
    "numpy._core._add_newdocs_scalars": {},
    "numpy._typing": {"NDArray": list},
    "pickle": {},
    "weakref": {},
    "tokenizers.implementations": _NO_IMPLEMENTATIONS,
    "importlib.metadata": {"version": lambda name: "", "PackageNotFoundError": ImportError},
}

_LOGGING = _StandIn("logging", {"getLogger": _Logger})
_STAND_INS = {name: _StandIn(name) for name in ("copy", "shlex", "shutil", "signal")} | {
    "logging": _LOGGING
}
