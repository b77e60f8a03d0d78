"""Yields what changes in folders, by the system's notifications; tells where these don't come."""

from __future__ import annotations

import contextlib
import logging
import re
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from watchfiles import Change

STEP_MS = 100  # changes are gathered until none came for as long as this
DEBOUNCE_MS = 200  # and reported after this at the latest
LOOK_MS = 500  # how often an empty set is yielded, so that the caller can look at the folders

_MOUNTS = Path("/proc/self/mountinfo")
_POINT = 4  # the field of mountinfo that names the folder
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
        return file_system(folder, _MOUNTS.read_text(errors="surrogateescape")) in _REMOTE
    return False


def file_system(folder: Path, mounts: str) -> str:
    """Returns the type of the file system at `folder`; `mounts`: the text of mountinfo."""
    kind, depth = "", 0
    for line in mounts.splitlines():
        point, _, facts = line.partition(" - ")
        fields = point.split(" ")
        if len(fields) <= _POINT or not facts:
            continue
        place = Path(_unescaped(fields[_POINT]))
        if len(place.parts) >= depth and folder.is_relative_to(place):
            kind, depth = facts.split(" ")[0], len(place.parts)
    return kind


def _unescaped(field: str) -> str:
    """Returns a path of mountinfo, which writes blanks as octal numbers."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)
