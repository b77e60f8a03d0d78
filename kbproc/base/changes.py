"""Tells what changes in folders, by the system's notifications; and where these don't come."""

from __future__ import annotations

import contextlib
import logging
import re
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import astuple

from kbproc.base.workers import Worker

if TYPE_CHECKING:
    from watchfiles import Change

STEP_MS = 100  # changes are gathered until none came for as long as this
DEBOUNCE_MS = 200  # and reported after this at the latest
LOOK_MS = 500  # how often an empty set is yielded, so that the caller can look at the folders
RETRY_S = 0.5  # after a failure
_MOST_FAILURES = 3  # so many in a row end the notifications
_JOIN_S = 3.0  # limited, because a folder's file system may hang
_logger = logging.getLogger(__name__)

Identity = tuple[int, int]  # device, inode

_MOUNTS = Path("/proc/self/mountinfo")
_SUBTREE, _POINT = 3, 4  # the fields of mountinfo that name the mounted part and the folder
# File systems whose other users change files without a notification here.
_REMOTE = frozenset(
    [
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "smbfs",
        "9p",
        "afs",
        "ceph",
        "glusterfs",
        "lustre",
        "virtiofs",
        "vboxsf",
        "davfs",
        "drvfs",
        "prl_fs",
        "fuse.sshfs",
        "fuse.rclone",
        "fuse.gvfsd-fuse",
        "fuse.s3fs",
        "fuse.glusterfs",
        "fuse.davfs2",
        "fuse.vmhgfs-fuse",
    ]
)


class Notifications:
    """Calls `changed` on a thread of its own with the paths that changed right in any of the
    folders, and `failed` once if the system can't report them.

    `concerns` says of a file's name whether its changes are reported. `changed` gets None when
    other folders are watched, because changes may have gone unnoticed until then. It may be called
    without a change. The thread begins with the first folder.
    """

    def __init__(
        self,
        changed: Callable[[Collection[str] | None], None],
        failed: Callable[[str], None],
        concerns: Callable[[str], bool],
    ) -> None:
        self._changed = changed
        self._failed = failed
        self._concerns = concerns
        self._folders: dict[Path, Identity] = {}
        self._is_stale = False  # a folder was made anew, maybe under the same inode
        self._failures = 0
        self._woken = threading.Event()  # set for other folders, and at the end
        self._worker = Worker("changes", self._step, first_s=None)

    def watch(self, folders: Iterable[Path]) -> bool:
        """Watches these folders from now on, and no others; returns False if they are the same.

        The first one is the uppermost.
        """
        identities = {folder: it for folder in folders if (it := identity(folder))}
        if identities == self._folders and not self._is_stale:
            return False
        self._folders, self._is_stale = identities, False
        try:
            self._worker.start()
        except RuntimeError as error:
            self._give_up(error, identities)
        self._woken.set()
        self._worker.wake()
        return True

    @property
    def is_running(self) -> bool:
        return self._worker.is_running

    def close(self) -> None:
        self._worker.stop()
        self._woken.set()

    def join(self) -> None:
        self._worker.join(_JOIN_S)

    def _step(self, is_woken: bool) -> float | None:
        """Follows the folders; returns the seconds until it tries again, None without folders."""
        self._woken.clear()
        folders = self._folders
        if self._worker.is_stopped or not folders:
            return None
        try:
            self._follow(folders)
            return 0.0
        except FileNotFoundError:  # a folder vanished before it could be watched
            pass
        except (ImportError, OSError, RuntimeError) as error:  # a name that is not UTF-8, too
            self._failures += 1
            if self._failures == _MOST_FAILURES or isinstance(error, ImportError):
                self._give_up(error, folders)
                return None
        self._changed(None)
        return RETRY_S

    def _give_up(self, error: Exception, folders: dict[Path, Identity]) -> None:
        top = next(iter(folders), "no folder")
        _logger.warning("changes in %s can't be watched: %s", top, error)
        self._worker.stop()
        self._failed(str(error))

    def _follow(self, folders: dict[Path, Identity]) -> None:
        """Reports changes until there are other folders."""
        is_watching = False
        top, top_identity = next(iter(folders.items()))
        names = set(map(str, folders))

        def concerns(path: str) -> bool:
            return path in names or self._concerns(path.rpartition("/")[2])

        for paths in follow(list(folders), self._woken, concerns):
            if self._woken.is_set():
                break
            is_replaced = identity(top) != top_identity
            self._is_stale = self._is_stale or not names.isdisjoint(paths)
            if is_replaced or not is_watching:
                self._changed(None)
            elif paths:
                self._changed(paths)
            is_watching, self._failures = True, 0
            if is_replaced:
                self._woken.wait(RETRY_S)


def identity(folder: Path) -> Identity | None:
    with contextlib.suppress(OSError):
        status = folder.stat()
        return status.st_dev, status.st_ino
    return None


def follow(
    folders: Sequence[Path], stop: threading.Event, concerns: Callable[[str], bool]
) -> Iterator[set[str]]:
    """Yields the changed paths right in the folders that `concerns` lets through, or an empty set.

    It ends when `stop` is set. Raises ImportError, OSError, RuntimeError.
    """
    # watchfiles logs a line for each change, which would flood the log.
    logging.getLogger("watchfiles").setLevel(logging.WARNING)
    from watchfiles import watch

    def lets_through(_: Change, path: str) -> bool:
        return concerns(path)

    for batch in watch(
        *folders,
        watch_filter=lets_through,
        debounce=DEBOUNCE_MS,
        step=STEP_MS,
        stop_event=stop,
        rust_timeout=LOOK_MS,
        yield_on_timeout=True,
        raise_interrupt=False,
        recursive=False,
    ):
        yield {path for _, path in batch}


def is_remote(folder: Path) -> bool:
    """Returns True if the folder lies on a file system that reports no changes of others."""
    if sys.platform != "linux":
        return False
    with contextlib.suppress(OSError):
        return mount_of(folder, _mounts()).kind in _REMOTE
    return False


class Mount(Struct, frozen=True):
    """The mount that a folder lies in: the folder where it begins, the part of the file system
    that is shown there, and the file system's type. A restart changes none of them.
    """

    point: str = ""
    subtree: str = ""
    kind: str = ""


def mount_at(folder: Path) -> str:
    """Returns where the mount begins that the folder lies in, and what it shows, in one text.

    Raises OSError.
    """
    if sys.platform == "linux":
        return "\n".join(astuple(mount_of(folder, _mounts())))
    device, point = folder.stat().st_dev, folder
    while point != point.parent and point.parent.stat().st_dev == device:
        point = point.parent
    return str(point)


def remote_points() -> tuple[Path, ...]:
    """Returns the folders where file systems of others are mounted, whose servers may hang.

    The mounts are read once a second, because every search asks for them.
    """
    return _remote_points(int(time.monotonic())) if sys.platform == "linux" else ()


@lru_cache(maxsize=1)
def _remote_points(second: int) -> tuple[Path, ...]:
    """`second`: the second for which the answer holds."""
    with contextlib.suppress(OSError):
        mounts = [line.partition(" - ") for line in _mounts().splitlines()]
        remote = (before for before, _, facts in mounts if facts.partition(" ")[0] in _REMOTE)
        return tuple(Path(_unescaped(before.split(" ")[_POINT])) for before in remote)
    return ()


def _mounts() -> str:
    return _MOUNTS.read_text(errors="surrogateescape")


def mount_of(folder: Path, mounts: str) -> Mount:
    """Returns the mount that the folder lies in; `mounts`: the text of mountinfo."""
    uppermost, depth = Mount(), 0
    for line in mounts.splitlines():
        before, _, facts = line.partition(" - ")
        fields = before.split(" ")
        if len(fields) <= _POINT or not facts:
            continue
        point = Path(_unescaped(fields[_POINT]))
        if len(point.parts) >= depth and folder.is_relative_to(point):
            subtree = _unescaped(fields[_SUBTREE])
            uppermost, depth = Mount(str(point), subtree, facts.split(" ")[0]), len(point.parts)
    return uppermost


def _unescaped(field: str) -> str:
    """Returns a path of mountinfo, which writes blanks as octal numbers."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)
