"""Records the calls that change files, and makes the folders that a crash after any of them leaves.

POSIX promises little of what was not synced. A file's bytes are durable once the file was synced, a
name once its folder was. Anything else may be there or not, in any order; a write may be there in
part, with holes where blocks before others are not, and where a file has grown without its bytes
there are zeros. A renaming is there as a whole or not at all.

What is below a folder `views` is not recorded, apart from the marks of the log's segments.
"""

from __future__ import annotations

import errno
import itertools
import os
import random
import stat
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kbproc.base import disk
from tests.kit.faults import as_killed

SECTOR = 512
ROOT = 0


class Op(NamedTuple):
    """A call that changed something. `node`: of the file or folder, `folder`: of its name.

    A name that moves has `to` and `name_there`. A write has `at` and `data`, a cut has `at`.
    """

    kind: str
    node: int
    folder: int = -1
    name: str = ""
    to: int = -1
    name_there: str = ""
    at: int = 0
    data: bytes = b""


DATA = ("write", "cut")


class Fault(NamedTuple):
    """The error that a call raises instead of its work; a short write writes half of its bytes."""

    error: int = errno.ENOSPC
    is_short: bool = False


def no_fault(number: int, call: str) -> Fault | None:
    return None


class Recorder:
    """Stands in for `disk`, and lists the calls below `root` in the order in which they ended.

    `fault`: what becomes of a call, by its number and name.
    """

    def __init__(self, root: Path, fault: Callable[[int, str], Fault | None] = no_fault) -> None:
        self.ops: list[Op] = []
        self.calls = 0
        self._fault = fault
        self._nodes = {root.stat().st_ino: ROOT}
        self._last = ROOT
        self._lock = threading.RLock()

    @contextmanager
    def recording(self) -> Iterator[Recorder]:
        with pytest.MonkeyPatch.context() as patch:
            for name in (
                "open",
                "write",
                "write_at",
                "truncate",
                "sync",
                "sync_data",
                "rename",
                "unlink",
                "make_folder",
                "remove_folder",
            ):
                patch.setattr(disk, name, self._standing_in(name, getattr(disk, name)))
            yield self

    def _standing_in(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        does = getattr(self, f"_{name}")

        def call(*arguments: Any, **named: Any) -> Any:
            with self._lock:
                return does(real, *arguments, **named)

        return call

    # ------------------------------------------------------------------ nodes

    def _node(self, status: os.stat_result) -> int | None:
        return self._nodes.get(status.st_ino)

    def _folder_of(self, path: Any) -> int | None:
        """Returns the node of the folder that the name is in; None if it is not recorded."""
        path = Path(path)
        status = path.parent.stat()
        if path.parent.name == "views":
            if not path.name.startswith("log.seen"):
                return None
            store = self._node(path.parent.parent.stat())
            if store is not None and self._node(status) is None:
                self.ops.append(Op("make folder", self._new(status.st_ino), store, "views"))
        return self._node(status)

    def _new(self, inode: int) -> int:
        self._last += 1
        self._nodes[inode] = self._last
        return self._last

    def _forget(self, status: os.stat_result) -> None:
        """Forgets an inode whose last name has gone, because another file may get its number."""
        if stat.S_ISDIR(status.st_mode) or status.st_nlink <= 1:
            self._nodes.pop(status.st_ino, None)

    def _refuse(self, name: str) -> bool:
        """Raises the call's fault; returns True for a short write."""
        self.calls += 1
        fault = self._fault(self.calls, name)
        if fault is None:
            return False
        if fault.is_short and name in {"write", "write_at"}:
            return True
        raise OSError(fault.error, os.strerror(fault.error))

    # ------------------------------------------------------------------ calls

    def _open(self, real: Any, path: Any, flags: int, mode: int = 0o777) -> int:
        folder = self._folder_of(path) if flags & os.O_CREAT else None
        is_new = flags & os.O_CREAT and not os.path.lexists(path)
        if folder is not None and is_new:
            self._refuse("open")
        fd: int = real(path, flags, mode)
        status = os.fstat(fd)
        if folder is not None and is_new:
            self.ops.append(Op("make", self._new(status.st_ino), folder, Path(path).name))
        elif flags & os.O_TRUNC and (node := self._node(status)) is not None:
            self.ops.append(Op("cut", node))
        return fd

    def _write(self, real: Any, fd: int, data: Any) -> int:
        status = os.fstat(fd)
        node = self._node(status)
        if node is None:
            return real(fd, data)  # type: ignore[no-any-return]
        is_appended = bool(_flags(fd) & os.O_APPEND)
        at = status.st_size if is_appended else os.lseek(fd, 0, os.SEEK_CUR)
        return self._written(node, lambda part: real(fd, part), bytes(data), at, "write")

    def _write_at(self, real: Any, fd: int, data: Any, offset: int) -> int:
        node = self._node(os.fstat(fd))
        if node is None:
            return real(fd, data, offset)  # type: ignore[no-any-return]
        return self._written(
            node, lambda part: real(fd, part, offset), bytes(data), offset, "write_at"
        )

    def _written(
        self, node: int, write: Callable[[bytes], int], data: bytes, at: int, name: str
    ) -> int:
        if self._refuse(name) and len(data) > 1:
            data = data[: len(data) // 2]
        done = write(data)
        self.ops.append(Op("write", node, at=at, data=data[:done]))
        return done

    def _truncate(self, real: Any, fd: int, size: int) -> None:
        node = self._node(os.fstat(fd))
        if node is not None:
            self._refuse("truncate")
        real(fd, size)
        if node is not None:
            self.ops.append(Op("cut", node, at=size))

    def _sync(self, real: Any, fd: int) -> None:
        node = self._node(os.fstat(fd))
        if node is None:
            return
        try:
            self._refuse("sync")
        except OSError:
            self.ops.append(Op("failed sync", node))
            raise
        self.ops.append(Op("sync", node))

    _sync_data = _sync

    def _rename(self, real: Any, old: Any, new: Any) -> None:
        status = os.lstat(old)
        node, folder, to = self._node(status), self._folder_of(old), self._folder_of(new)
        if node is None or folder is None or to is None:
            return real(old, new)  # type: ignore[no-any-return]
        self._refuse("rename")
        if os.path.lexists(new):
            self._forget(os.lstat(new))
        real(old, new)
        self.ops.append(Op("rename", node, folder, Path(old).name, to, Path(new).name))
        return None

    def _unlink(self, real: Any, path: Any) -> None:
        status = os.lstat(path)
        node, folder = self._node(status), self._folder_of(path)
        if node is None or folder is None:
            return real(path)  # type: ignore[no-any-return]
        self._refuse("unlink")
        real(path)
        self._forget(status)
        self.ops.append(Op("remove", node, folder, Path(path).name))
        return None

    def _make_folder(self, real: Any, path: Any, mode: int = 0o777) -> None:
        folder = self._folder_of(path)
        if folder is not None and not os.path.lexists(path):
            self._refuse("make_folder")
        real(path, mode)
        if folder is not None:
            node = self._new(os.lstat(path).st_ino)
            self.ops.append(Op("make folder", node, folder, Path(path).name))

    def _remove_folder(self, real: Any, path: Any) -> None:
        status, folder = os.lstat(path), self._folder_of(path)
        node = self._node(status)
        real(path)
        if node is not None and folder is not None:
            self._forget(status)
            self.ops.append(Op("remove", node, folder, Path(path).name))


def _flags(fd: int) -> int:
    import fcntl

    return fcntl.fcntl(fd, fcntl.F_GETFL)


# ------------------------------------------------------------------------- the disk


class _File:
    """A file: the bytes that are durable, and the changes since.

    Changes before a failed sync may have got lost unnoticed: no later sync makes them durable.
    """

    def __init__(self) -> None:
        self.synced = b""
        self.changes: list[Op] = []
        self._doubtful = 0  # so many of the first changes belong to a failed sync

    def sync(self) -> None:
        doubtful, self._doubtful = self.changes[: self._doubtful], 0
        if doubtful:
            self.synced = changed(self.synced, self.changes[len(doubtful) :])
        else:
            self.synced = changed(self.synced, self.changes)
        self.changes = []

    def fail(self) -> None:
        self._doubtful = len(self.changes)


def changed(data: bytes, changes: Collection[Op]) -> bytes:
    """Returns the bytes after these writes and cuts."""
    new = bytearray(data)
    for op in changes:
        if op.kind == "cut":
            new = new[: op.at].ljust(op.at, b"\0")
        else:
            if len(new) < op.at:
                new = new.ljust(op.at, b"\0")
            new[op.at : op.at + len(op.data)] = op.data
    return bytes(new)


Tree = dict[str, bytes | None]  # a file's bytes, or None for a folder, by path


class Disk:
    """The state of a disk after some of the recorded calls."""

    def __init__(self) -> None:
        self._files: dict[int, _File] = {}
        self._names: dict[int, dict[str, int]] = {ROOT: {}}  # durable names of each folder
        self._moves: list[tuple[Op, set[int]]] = []  # changes of names, and folders to sync

    def apply(self, op: Op) -> None:
        if op.kind in {"make", "make folder"}:
            if op.kind == "make":
                self._files[op.node] = _File()
            else:
                self._names[op.node] = {}
        if op.kind in DATA:
            self._files[op.node].changes.append(op)
        elif op.kind == "failed sync":
            if op.node in self._files:
                self._files[op.node].fail()
        elif op.kind == "sync":
            if op.node in self._files:
                self._files[op.node].sync()
            else:
                self._sync_names(op.node)
        else:
            self._moves.append((op, {op.folder, op.to} - {-1}))

    def _sync_names(self, folder: int) -> None:
        waiting = []
        for op, folders in self._moves:
            folders.discard(folder)
            if folders:
                waiting.append((op, folders))
            else:
                _move(self._names, op)
        self._moves = waiting

    def tree(self, model: Model) -> Tree:
        """Returns the files and folders that are there after a crash."""
        names = {folder: dict(entries) for folder, entries in self._names.items()}
        for op, _ in self._moves:
            if model.has_move(op):
                _move(names, op)
        tree: Tree = {}
        self._list(tree, names, model, ROOT, "")
        return tree

    def _list(
        self, tree: Tree, names: dict[int, dict[str, int]], model: Model, folder: int, above: str
    ) -> None:
        for name, node in sorted(names[folder].items()):
            path = above + name
            if node in names:
                tree[path] = None
                self._list(tree, names, model, node, f"{path}/")
            else:
                file = self._files[node]
                tree[path] = changed(file.synced, model.data(file.changes))


def _move(names: dict[int, dict[str, int]], op: Op) -> None:
    if names[op.folder].get(op.name) == op.node and op.kind in {"rename", "remove"}:
        del names[op.folder][op.name]
    if op.kind == "rename":
        names[op.to][op.name_there] = op.node
    elif op.kind in {"make", "make folder"}:
        names[op.folder][op.name] = op.node


class Model:
    """Chooses what a crash leaves of names and bytes that were not synced: here, everything."""

    def has_move(self, op: Op) -> bool:
        return True

    def data(self, changes: list[Op]) -> list[Op]:
        return changes


class Lost(Model):
    """Nothing that was not synced is there."""

    def has_move(self, op: Op) -> bool:
        return False

    def data(self, changes: list[Op]) -> list[Op]:
        return []


class Torn(Model):
    """Everything is there, apart from the end of the last write of each file.

    `place`: from 0 to 1. `has_zeros`: the file has grown all the same.
    """

    def __init__(self, place: float, *, has_zeros: bool = False, at_sector: bool = False) -> None:
        self._place, self._has_zeros, self._at_sector = place, has_zeros, at_sector

    def data(self, changes: list[Op]) -> list[Op]:
        if not changes or changes[-1].kind != "write":
            return changes
        return [*changes[:-1], self._torn(changes[-1])]

    def _torn(self, op: Op) -> Op:
        end = int(len(op.data) * self._place)
        if self._at_sector:
            end = max((op.at + end) // SECTOR * SECTOR - op.at, 0)
        data = op.data[:end]
        return op._replace(data=data.ljust(len(op.data), b"\0") if self._has_zeros else data)


class Holes(Model):
    """Everything is there, apart from some blocks of what was written."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def data(self, changes: list[Op]) -> list[Op]:
        return [part for op in changes for part in self._parts(op)]

    def _parts(self, op: Op) -> Iterator[Op]:
        if op.kind != "write":
            yield op
            return
        end = op.at + len(op.data)
        bounds = [op.at, *range((op.at // SECTOR + 1) * SECTOR, end, SECTOR), end]
        for start, after in itertools.pairwise(bounds):
            if after == end or self._chance.random() < 0.5:
                yield op._replace(at=start, data=op.data[start - op.at : after - op.at])


class Mixed(Model):
    """Any part of what was not synced is there."""

    def __init__(self, seed: object) -> None:
        self._chance = random.Random(f"{seed}")

    def has_move(self, op: Op) -> bool:
        return self._chance.random() < 0.5

    def data(self, changes: list[Op]) -> list[Op]:
        present = []
        for op in changes:
            if self._chance.random() < 0.25:
                present += Holes(self._chance).data([op])
            elif self._chance.random() < 0.4:
                torn = Torn(
                    self._chance.choice((1, 1, self._chance.random())),
                    has_zeros=self._chance.random() < 0.5,
                    at_sector=self._chance.random() < 0.5,
                )
                present += torn.data([op])
        return present


def has_hole(tree: Tree, log: str) -> bool:
    """Returns True if a whole line of the log's segments holds zeros."""
    segments = [
        data or b""
        for path, data in tree.items()
        if path.startswith(log) and path.endswith(".ndjson")
    ]
    return any(b"\0" in data[: data.rfind(b"\n") + 1] for data in segments)


def write_tree(tree: Tree, folder: Path) -> None:
    """Makes the files and folders in a new folder."""
    folder.mkdir()
    for path, data in tree.items():
        if data is None:
            (folder / path).mkdir(mode=0o700)
        else:
            fd = os.open(folder / path, os.O_WRONLY | os.O_CREAT, 0o600)
            with os.fdopen(fd, "wb") as file:
                file.write(data)


def holds(folder: Path, words: Collection[bytes]) -> list[str]:
    """Returns the files below that hold one of the words."""
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return [
        str(path.relative_to(folder))
        for path in files
        if any(word in data for data in (path.read_bytes(),) for word in words)
    ]


def copy_views(store: Path, target: Path) -> None:
    """Copies the files of the projections."""
    if (store / "views").is_dir():
        as_killed(store / "views", target, "log.seen*", "*.lock")
