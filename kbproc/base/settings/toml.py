"""Small TOML files that people and kbproc both write.

Owns: reading one so that every fault is named by path and line, writing one so that
it is whole or as it was, and the lock of those who change one.
Refuses to know: which keys a file has and what they mean.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from kbproc.base.durable import replace
from kbproc.base.errors import KbprocError, is_lasting

MOST_BYTES = 1 << 16  # more than anybody writes by hand
_LINE = r"\(at line (\d+), column \d+\)$"
_END = "(at end of document)"


class Toml(Struct, frozen=True, kw_only=True):
    """A file as it was read."""

    path: Path
    text: str
    table: dict[str, Any]

    def fault(self, message: str, *keys: str) -> KbprocError:
        """An error about what stands at `keys`, from the outermost in."""
        return fault(self.path, message, self.line_of(keys))

    def line_of(self, keys: tuple[str, ...]) -> int | None:
        """The line, from 1, that first sets this member; None if it is not found.

        What the file says up to a line tells whether the member is there already;
        only lines that name it are tried, once whole and once with their value cut off.
        """
        lines = self.text.split("\n")
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
    """Raises input.invalid_params with path and line for what is no TOML."""
    import tomllib

    if len(data) > MOST_BYTES:
        raise fault(path, f"The file is over {MOST_BYTES >> 10} KiB.", None)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise fault(path, "This is not UTF-8.", data.count(b"\n", 0, error.start) + 1) from None
    text = text.replace("\r\n", "\n")
    try:
        return Toml(path=path, text=text, table=tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise fault(path, *_complaint(str(error), text)) from None
    except RecursionError:
        raise fault(path, "The file is nested too deeply.", None) from None


def _complaint(message: str, text: str) -> tuple[str, int]:
    """What tomllib says, and where."""
    if message.endswith(_END):
        return message.removesuffix(_END).strip() + ".", len(text.rstrip().split("\n"))
    found = re.search(_LINE, message)
    return re.sub(_LINE, "", message).strip() + ".", int(found[1]) if found else 1


def read(path: Path) -> Toml | None:
    """None if there is no such file; raises input.invalid_params, store.io."""
    try:
        with open(path, "rb", opener=_opened) as file:
            return parsed(path, file.read(MOST_BYTES + 1))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise failed(path, error) from None


def _opened(path: str, flags: int) -> int:
    """Of regular files only: a pipe would be waited for. Raises OSError."""
    fd = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)
    mode = os.fstat(fd).st_mode
    if stat.S_ISREG(mode):
        return fd
    os.close(fd)
    if stat.S_ISDIR(mode):
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
    raise OSError(errno.EINVAL, "It is no regular file")


def failed(path: Path, error: OSError) -> KbprocError:
    return KbprocError(
        "store.io",
        f"{path}: {error.strerror or error}.",
        hint="Check who owns the file and its folder, and whether the disk is full or read-only.",
        detail={"path": str(path)},
        lasting=is_lasting(error),
    )


# --------------------------------------------------------------------- writing


def pairs(values: Mapping[str, str | int | float]) -> str:
    """Lines `key = value`; keys are bare ones."""
    return "".join(f"{key} = {_value(value)}\n" for key, value in values.items())


def _value(value: str | float) -> str:
    """JSON's escapes are TOML's, too; TOML alone wants DEL escaped."""
    try:
        return msgspec.json.encode(value).decode().replace("\x7f", "\\u007f")
    except UnicodeEncodeError:
        return '"?"'  # which is not read back: see `encoded`


def encoded(path: Path, text: str, table: Mapping[str, Any]) -> bytes:
    """The bytes of a file that says `table`; nothing is written that could not be read back.

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


def with_table(path: Path, name: str, said: Mapping[str, Any], first: Mapping[str, Any]) -> bytes:
    """The file with this table, all else as it is; an empty table goes. `first`: what a new file
    begins with. Raises input.invalid_params, store.io.
    """
    before, lines = read(path), f"[{name}]\n{pairs(said)}" if said else ""
    table = dict(first if before is None else before.table)
    table.pop(name, None)
    if before is None:
        text = f"{pairs(first)}\n{lines}"
    elif found := _table(name).search(before.text):
        rest = before.text[found.end() :]
        text = before.text[: found.start()] + lines + (f"\n{rest}" if rest and lines else rest)
    else:
        text = f"{before.text}\n{lines}"
    return encoded(path, text, {**table, name: said} if said else table)


def _table(name: str) -> re.Pattern[str]:
    """To the next one."""
    return re.compile(rf"^\[{name}\].*\n?(?:(?!\[).*\n)*(?:(?!\[).+)?", re.MULTILINE)


def write(path: Path, text: str, table: Mapping[str, Any]) -> None:
    """A file that says `table`: all of it or nothing, mode 0600; a symlink stays one.

    Raises input.invalid_params for what could not be read back, store.io.
    """
    target = Path(os.path.realpath(path))
    beside = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    data = encoded(path, text, table)
    try:
        replace(target, data, beside=beside)
    except OSError as error:
        raise failed(path, error) from None


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """One process at a time changes the file; makes its folder, mode 0700. Raises store.io."""
    lock = path.with_suffix(".lock")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.parent.chmod(0o700)
        fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise failed(lock, error) from None
    try:
        _take(fd, lock)
        yield
    finally:
        os.close(fd)


def _take(fd: int, lock: Path) -> None:
    import fcntl

    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
    except OSError as error:
        raise failed(lock, error) from None
