"""Reads and writes small TOML files that people edit, too.

Every fault is reported with path and line. A file is written whole or not at all, under a lock.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from kbproc.base import disk
from kbproc.base.errors import KbprocError, is_lasting
from kbproc.base.paths import open_followed

MOST_BYTES = 1 << 16  # more than a person writes by hand
_LINE = r"\(at line (\d+), column \d+\)$"
_END = "(at end of document)"
_DIGITS = 18
_BOOLEANS = {"true": True, "false": False}


class Toml(Struct, frozen=True, kw_only=True):
    """A file as it was read."""

    path: Path
    text: str
    table: dict[str, Any]

    def fault(self, message: str, *keys: str) -> KbprocError:
        """Returns an error about the value at `keys`, from the outermost in."""
        return fault(self.path, message, self.line_of(keys))

    def line_of(self, keys: tuple[str, ...]) -> int | None:
        """Returns the line, from 1, that first sets this member; None if it is not found.

        The text up to a line shows whether the member is set already; only lines that name it are
        tried, once whole and once with their value cut off.
        """
        lines = self.text.replace("\r\n", "\n").split("\n")
        for number, line in enumerate(lines, 1):
            if keys[-1] in line:
                before = lines[: number - 1]
                for text in (line, line.partition("=")[0] + "= 0"):
                    if _holds("\n".join([*before, text]), keys):
                        return number
        return None


def _holds(text: str, keys: tuple[str, ...]) -> bool:
    import tomllib

    try:
        here: Any = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        return False
    for key in keys:
        if not isinstance(here, dict) or key not in here:
            return False
        here = here[key]
    return True


def fault(path: Path, message: str, line: int | None) -> KbprocError:
    place = str(path) if line is None else f"{path}, line {line}"
    return KbprocError(
        "input.invalid_params",
        f"{place}: {message}",
        hint="Correct that file with an editor, or move it aside; kbproc does not overwrite it.",
        field=str(path),
        detail={"path": str(path), "line": line},
    )


def parsed(path: Path, data: bytes) -> Toml:
    """Parses a file. Raises input.invalid_params with path and line if it is not TOML."""
    if len(data) > MOST_BYTES:
        raise fault(path, f"The file is over {MOST_BYTES >> 10} KiB.", None)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise fault(path, "This is not UTF-8.", data.count(b"\n", 0, error.start) + 1) from None
    table = plain_table(text)
    if table is not None:
        return Toml(path=path, text=text, table=table)
    import tomllib

    try:
        return Toml(path=path, text=text, table=tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise fault(path, *_complaint(str(error), text)) from None
    except RecursionError:
        raise fault(path, "The file is nested too deeply.", None) from None


def plain_table(text: str) -> dict[str, Any] | None:
    """Returns what a text holds that has one member or one table's name a line; None for others.

    kbproc writes such files itself, and tomllib takes longer to import than a list to answer.
    Strings have no escapes here, numbers are whole, and nothing is nested further.
    """
    whole: dict[str, Any] = {}
    table = whole
    for line in filter(None, text.split("\n")):
        key, equals, value = line.partition(" = ")
        begins_table = not equals and line[0] == "[" and line[-1] == "]"
        if begins_table:
            key, table = line[1:-1], whole
        if not _is_bare(key) or key in table:
            return None
        if begins_table:
            table = whole[key] = {}
        elif value.isdecimal() and len(value) < _DIGITS and value == str(int(value)):
            table[key] = int(value)
        elif value in _BOOLEANS:
            table[key] = _BOOLEANS[value]
        elif len(value) > 1 and value[0] == value[-1] == '"' and _is_plain(value[1:-1]):
            table[key] = value[1:-1]
        else:
            return None
    return whole


def _is_bare(key: str) -> bool:
    return key.isascii() and key.replace("-", "").replace("_", "").isalnum()


def _is_plain(text: str) -> bool:
    return text.isprintable() and '"' not in text and "\\" not in text


def _complaint(message: str, text: str) -> tuple[str, int]:
    """Returns tomllib's message and the line."""
    if message.endswith(_END):
        return message.removesuffix(_END).strip() + ".", len(text.rstrip().split("\n"))
    place = re.search(_LINE, message)
    return re.sub(_LINE, "", message).strip() + ".", int(place[1]) if place else 1


def read(path: Path) -> Toml | None:
    """Returns the file; None if there is none. Raises input.invalid_params, store.io."""
    try:
        with open(path, "rb", opener=open_followed) as file:
            return parsed(path, file.read(MOST_BYTES + 1))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise failed(path, error) from None


def failed(path: Path, error: OSError) -> KbprocError:
    return KbprocError(
        "store.io",
        f"{path}: {error.strerror or error}.",
        hint="Check who owns the file and its folder, and whether the disk is full or read-only.",
        detail={"path": str(path)},
        lasting=is_lasting(error),
    )


# --------------------------------------------------------------------- writing


def encoded(path: Path, text: str, table: Mapping[str, Any]) -> bytes:
    """Returns the bytes of a file that holds `table`, after reading them back as a check.

    Raises input.invalid_params.
    """
    import tomllib

    try:
        data = text.encode()
        same = len(data) <= MOST_BYTES and tomllib.loads(text) == table
    except (UnicodeEncodeError, tomllib.TOMLDecodeError, RecursionError):
        same = False
    if not same:
        raise KbprocError(
            "input.invalid_params",
            f"{path.name} can't keep these values: they could not be read back.",
            hint="Use shorter values of plain UTF-8 text.",
            detail={"path": str(path)},
        )
    return data


def with_table(path: Path, name: str, values: Mapping[str, Any], first: Mapping[str, Any]) -> bytes:
    """Returns the file with this table, the rest unchanged; an empty table is removed.

    `first`: the values at the top of a new file. Raises input.invalid_params, store.io.
    """
    from kbproc.base import toml_edit

    before = read(path)
    text = toml_edit.members(first) if before is None else before.text
    table = dict(first if before is None else before.table)
    if values:
        text = toml_edit.change(text, (name,), values)
    elif name in table:
        text = toml_edit.drop(text, (name,))
    table.pop(name, None)
    return encoded(path, text, {**table, name: values} if values else table)


def write(path: Path, text: str, table: Mapping[str, Any]) -> None:
    """Writes a file that holds `table`, whole or not at all, mode 0600; a symlink stays one.

    Raises input.invalid_params for values that could not be read back, store.io.
    """
    from kbproc.base.durable import replace  # not above: most processes write no settings

    target = Path(os.path.realpath(path))
    beside = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    data = encoded(path, text, table)
    try:
        replace(target, data, beside=beside)
    except OSError as error:
        raise failed(path, error) from None


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Locks the file against other processes; makes its folder, mode 0700. Raises store.io."""
    from kbproc.base.durable import lock, make_folder

    name = path.with_suffix(".lock")
    with contextlib.ExitStack() as opened:
        try:
            make_folder(path.parent)
            path.parent.chmod(0o700)
            fd = disk.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            opened.callback(disk.close, fd)
            lock(fd, math.inf)
        except OSError as error:
            raise failed(name, error) from None
        yield
