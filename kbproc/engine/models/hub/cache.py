"""Looks into the hub's cache on this machine, whose layout is huggingface_hub's.

models--OWNER--NAME/refs/BRANCH holds a commit, snapshots/COMMIT/FILE is a link to blobs/ETAG. The
etag is the sha256 of a large file, and the hash that git gives to a small one.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from kbproc.base.host import environment, user_folder
from kbproc.base.patterns import lazy
from kbproc.engine.models.hub.names import HubName, begins_commit, is_commit

_ETAG = lazy(r"[0-9a-f]{40}|[0-9a-f]{64}")


def hub_cache() -> Path:
    """Returns the folder where huggingface_hub keeps what it downloads."""
    variables = environment()
    for name, below in (("HF_HUB_CACHE", ""), ("HUGGINGFACE_HUB_CACHE", ""), ("HF_HOME", "hub")):
        if value := variables.get(name):
            return Path(os.path.expandvars(os.path.expanduser(value))) / below  # noqa: PTH111
    return user_folder("CACHE") / "huggingface" / "hub"


def repository_folder(repository: str, cache: Path | None = None) -> Path:
    return (cache or hub_cache()) / f"models--{repository.replace('/', '--')}"


def snapshot_folder(repository: str, commit: str, cache: Path | None = None) -> Path:
    return (repository_folder(repository, cache) / "snapshots" / commit).absolute()


def commit_in_cache(name: HubName) -> str | None:
    """Returns the commit that the cache has for a name; None if it has none.

    Without a revision it is the one of `main`, as huggingface_hub last saw it.
    """
    base = repository_folder(name.repository)
    revision = name.revision or "main"
    with contextlib.suppress(OSError, ValueError):
        commit = (base / "refs" / revision).read_text().strip()
        if is_commit(commit):
            return commit
    if not begins_commit(revision):
        return None
    commits = [path.name for path in (base / "snapshots").glob(f"{revision}*")]
    return commits[0] if len(commits) == 1 and is_commit(commits[0]) else None


def files_in(folder: Path) -> dict[str, int]:
    """Returns the files of a snapshot: path → size."""
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): path.stat().st_size for path in paths}


def sha256_of(path: Path) -> str:
    """Returns a file's sha256. Raises OSError."""
    import hashlib  # not above: it loads OpenSSL, and each start with a model imports this module

    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def git_hash_of(path: Path) -> str:
    """Returns the hash by which git knows a file's content. Raises OSError."""
    import hashlib

    checksum = hashlib.sha1(f"blob {path.stat().st_size}\0".encode(), usedforsecurity=False)
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            checksum.update(piece)
    return checksum.hexdigest()


def is_as_named(path: Path) -> bool:
    """Returns whether a file of the cache has the content that its name in `blobs` promises.

    A file that is no link, as on systems without them, has no such name.
    """
    etag = path.resolve().name if path.is_symlink() else ""
    if not _ETAG.fullmatch(etag):
        return True
    return etag == (sha256_of(path) if len(etag) == 64 else git_hash_of(path))


def differing(folder: Path, files: Mapping[str, str]) -> list[str]:
    """Returns the files that are missing in a folder, or whose sha256 is another one."""

    def differs(file: str, expected: str) -> bool:
        try:
            return sha256_of(folder / file) != expected
        except OSError:
            return True

    return [file for file, expected in files.items() if differs(file, expected)]


def remove(folder: Path, files: Iterable[str]) -> None:
    """Removes files of a snapshot with their content, so that they are downloaded again."""
    for file in files:
        path = folder / file
        with contextlib.suppress(OSError):
            if path.is_symlink():
                path.resolve().unlink(missing_ok=True)
            path.unlink(missing_ok=True)
