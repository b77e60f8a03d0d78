"""The sources' bytes, kept once by their sha256.

Owns: STORE/blobs/ab/cd…, written atomically and durably before a record names them.
Refuses to know: which document a blob belongs to.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterable
from pathlib import Path

from kbproc.base import durable
from kbproc.base.errors import KbprocError
from kbproc.base.failpoints import reach


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _read(path: Path) -> bytes:
    """Raises OSError, for a symlink, too."""
    with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW), "rb") as file:  # noqa: PTH123
        return file.read()


def forgotten() -> KbprocError:
    """What a content of the past is answered with once store.compact has erased it."""
    return KbprocError(
        "resource.not_found",
        "What the document held then is forgotten: store.compact has erased it.",
        hint="Only backups that were made before still have it.",
    )


class Blobs:
    """A folder of blobs; `folder` is made on first use."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, sha256: str) -> Path:
        return self.folder / sha256[:2] / sha256[2:4] / sha256

    def put(self, data: bytes) -> str:
        """Stores `data` and returns its sha256; equal bytes are stored once.

        The bytes are synced before the name appears: a blob that can be seen is whole.
        The name is synced before it is told. Raises store.io with nothing kept.
        """
        sha256 = digest(data)
        target = self.path(sha256)
        if target.is_file() and not target.is_symlink():
            return sha256
        # Two threads may store the same bytes at once: each writes a file of its own.
        temporary = target.with_name(f"{sha256}.{os.getpid()}-{threading.get_ident()}.tmp")
        try:
            durable.make_folder(target.parent)
            reach("blob.write")
            durable.replace(
                target, data, beside=temporary, written="blob.written", named="blob.named"
            )
        except OSError as error:
            raise KbprocError(
                "store.io", f"The source could not be stored: {error.strerror}."
            ) from error
        return sha256

    def heal(self, sha256: str, data: bytes) -> None:
        """Stores `data` again if its blob is lost; raises store.io."""
        if not self.path(sha256).exists():
            self.put(data)

    def erase(self, sha256: str) -> int:
        """Removes the bytes for good, and returns how many there were; raises OSError."""
        path = self.path(sha256)
        if not path.exists():
            return 0
        size = path.stat().st_size
        path.unlink()
        durable.sync_folder(path.parent)
        return size

    def sweep(self) -> None:
        """Removes what a process left unfinished when it died; raises OSError."""
        for path in self.folder.glob("*/*/*.tmp"):
            path.unlink(missing_ok=True)

    def get(self, sha256: str) -> bytes:
        """Raises store.corrupt if the blob is missing or is not what its name says.

        Raises resource.not_found for the empty name, under which nothing is kept.
        """
        if not sha256:
            raise forgotten()
        try:
            data = _read(self.path(sha256))
        except FileNotFoundError as error:
            raise KbprocError(
                "store.corrupt", f"The source {sha256[:12]}… is missing.", detail={"blob": sha256}
            ) from error
        except OSError as error:
            raise KbprocError(
                "store.io", f"The source {sha256[:12]}… could not be read: {error.strerror}."
            ) from error
        if digest(data) != sha256:
            raise KbprocError(
                "store.corrupt", f"The source {sha256[:12]}… is damaged.", detail={"blob": sha256}
            )
        return data

    def broken(self, wanted: Iterable[str], *, deep: bool) -> list[str]:
        """Those that are missing or, if `deep`, not what was stored."""
        return [sha256 for sha256 in wanted if not self._is_there(sha256, deep=deep)]

    def _is_there(self, sha256: str, *, deep: bool) -> bool:
        if not deep:
            return self.path(sha256).exists()
        try:
            self.get(sha256)
        except KbprocError:
            return False
        return True
