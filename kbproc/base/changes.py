"""Yields what changes in folders, by the system's notifications; tells where these don't come."""

from __future__ import annotations

import contextlib
import logging
import re
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from watchfiles import Change

STEP_MS = 100  # changes are gathered until none came for as long as this
DEBOUNCE_MS = 200  # and reported after this at the latest
LOOK_MS = 500  # how often an empty set is yielded, so that the caller can look at the folders

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


class Mount(NamedTuple):
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
        return "\n".join(mount_of(folder, _mounts()))
    device, point = folder.stat().st_dev, folder
    while point != point.parent and point.parent.stat().st_dev == device:
        point = point.parent
    return str(point)


def remote_points() -> list[Path]:
    """Returns the folders where file systems of others are mounted, whose servers may hang."""
    if sys.platform != "linux":
        return []
    with contextlib.suppress(OSError):
        mounts = [line.partition(" - ") for line in _mounts().splitlines()]
        remote = (before for before, _, facts in mounts if facts.partition(" ")[0] in _REMOTE)
        return [Path(_unescaped(before.split(" ")[_POINT])) for before in remote]
    return []


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
