"""A store's folder: its file store.toml, taking it, and whether it can be written.

Owns: what tells a store from another folder, the format version, the model as configured, which
links, modes and settings make it unsafe, what a write to a read-only store is answered, and the
bytes that a store takes on disk.
Refuses to know: what else lies in the folder.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kbproc.base.durable import replace
from kbproc.base.errors import KbprocError, is_lasting
from kbproc.base.paths import from_here, printable
from kbproc.log.lease import FileLease, Lease

FORMAT = 1
# What may lie in a folder that becomes a store: the beginnings of one, and a mount's own.
_BEGINNINGS = ("lock", "kbproc.sock", "store.toml", "lost+found")
DEFAULT_MODEL = {"kind": "onnx", "name": "all-MiniLM-L6-v2"}


def take_folder(folder: Path, pid: int) -> Lease:
    """Makes the folder if need be; returns the lease on it, which this process holds then.

    Raises store.io, store.locked; resource.already_exists for a folder of something else.
    """
    if folder.exists() and not folder.is_dir():
        raise KbprocError(
            "store.io",
            f"The store {folder} is a file, not a folder.",
            hint="Name a folder with --store or KBPROC_STORE.",
            lasting=True,
        )
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise KbprocError(
            "store.io",
            f"There is no store in {folder}, and none can be made there: {error.strerror}.",
            hint="Name another folder with --store or KBPROC_STORE.",
            lasting=is_lasting(error),
        ) from error
    lease = FileLease(folder)
    try:
        _refuse_foreign(folder)
        lease.take(pid)
    except OSError as error:
        raise KbprocError(
            "store.io",
            f"The store {folder} could not be opened: {error.strerror}.",
            lasting=is_lasting(error),
        ) from error
    return lease


def is_store(folder: Path) -> bool:
    """Also one that has lost its settings or its log."""
    return any((folder / name).exists() for name in ("store.toml", "log"))


def require_store(folder: Path, *, named: bool = True) -> None:
    """Raises resource.not_found where no store is and no process is making one.

    `named`: somebody has said which folder; else whoever adds need not say it either.
    """
    if not is_store(folder) and not (folder / "lock").exists():
        place = from_here(folder)
        raise KbprocError(
            "resource.not_found",
            f"There is no store in {place}.",
            hint="Check the path. Whatever adds makes a store: kbproc --store "
            f"{shlex.quote(place)} add DOCS."
            if named
            else "Whatever adds makes one: kbproc add DOCS.",
            detail={"store": str(folder)},
        )


def _refuse_foreign(folder: Path) -> None:
    """Raises resource.already_exists, OSError."""
    if is_store(folder):
        return
    names = (path.name for path in folder.iterdir())
    found = sorted(name for name in names if not name.startswith(_BEGINNINGS))
    if found:
        raise KbprocError(
            "resource.already_exists",
            f"{folder} is no store and not empty: it holds {found[0]!r}.",
            hint="Name an empty or a new folder with --store or KBPROC_STORE.",
            detail={"store": str(folder)},
        )


# What a store is made of → how many folders deep a link would lead a write elsewhere.
_PARTS = {
    "store.toml": 0,
    "lock": 0,
    "kbproc.sock": 0,
    "log": 1,
    "blobs": 2,
    "blobs.journal": 0,
    "vectors": 1,
    "views": 4,
    "notes": 1,
    "damaged": 2,
}


def check_links(folder: Path) -> None:
    """Raises store.io, which names it, for what is no file in the place of anything of the store's.

    For whoever is about to open a store; an overlay is made of links. What is linked could be
    read, written and deleted with the rights of whoever opens the store; a pipe would be waited
    for.
    """
    for name, depth in _PARTS.items():
        odd = _odd_in(folder / name, depth)
        if odd is not None:
            is_link = odd.is_symlink()
            what = "a symlink: no file of a store is opened through one"
            raise KbprocError(
                "store.io",
                f"{printable(odd)} is {what if is_link else 'no regular file'}.",
                hint="Find out who made it. Put the file or folder itself in its place, or remove "
                f"{'the link' if is_link else 'it'}; agent.update names a notes folder that lies "
                "elsewhere.",
                detail={"path": printable(odd)},
                lasting=True,
            )


def _odd_in(path: Path, depth: int) -> Path | None:
    """The first symlink, pipe or device at `path`, or in the folder that it is, so many deep."""
    try:
        mode = path.lstat().st_mode
    except OSError:
        return None
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISSOCK(mode)):
        return path
    if depth and stat.S_ISDIR(mode):
        with contextlib.suppress(FileNotFoundError, PermissionError), os.scandir(path) as found:
            for entry in found:
                plain = entry.is_file(follow_symlinks=False)
                if plain or (depth == 1 and entry.is_dir(follow_symlinks=False)):
                    continue  # told by the listing alone: there may be a folder for each source
                odd = _odd_in(Path(entry.path), depth - 1)
                if odd is not None:
                    return odd
    return None


def exposed(folder: Path) -> tuple[str, str] | None:
    """Why somebody else could have a part in what is written there, and the command that mends it.

    Raises OSError.
    """
    found = folder.lstat()
    if found.st_uid != os.geteuid():
        return (
            f"The store {folder} belongs to another user (uid {found.st_uid}).",
            f"chown -R {os.geteuid()} {shlex.quote(str(folder))}",
        )
    for path in (str(folder), *(f"{folder}/{name}" for name in _PARTS)):  # before every write
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            found = os.lstat(path)
            if found.st_mode & 0o022 and not stat.S_ISLNK(found.st_mode):
                return (
                    f"Others may write to {path} ({stat.S_IMODE(found.st_mode):o}).",
                    f"chmod -R go-rwx {shlex.quote(str(folder))}",
                )
    return None


def is_exposed(folder: Path) -> bool:
    """See `exposed`; a folder that has gone is not."""
    try:
        return exposed(folder) is not None
    except OSError:
        return False


def keep_private(folder: Path) -> None:
    """Closes what earlier versions left open to others. Raises OSError."""
    for path in (folder, *folder.rglob("*")):
        mode = stat.S_IMODE(path.lstat().st_mode)
        if mode & 0o077 and not path.is_symlink():
            path.chmod(mode & 0o700)


def size_of(folder: Path) -> int:
    """Bytes of all files below; one that goes meanwhile counts nothing."""
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            found = path.stat()
            total += found.st_size if stat.S_ISREG(found.st_mode) else 0
    return total


def read_settings(path: Path, model: dict[str, Any] | None) -> dict[str, Any]:
    """Of a store without settings, those that are written into it, with `model`.

    Raises store.io, store.corrupt, store.incompatible.
    """
    from kbproc.settings import toml  # not above: attached processes read no settings

    if not path.exists():
        write_settings(path, model or DEFAULT_MODEL)
    try:
        found = toml.read(path)
    except KbprocError as error:
        if error.type == "store.io":
            raise
        raise _unusable(error.message) from None
    settings = {} if found is None else found.table
    if "format" not in settings:
        raise _unusable(f"{path} names no format.")
    if settings["format"] != FORMAT:
        raise KbprocError(
            "store.incompatible",
            f"The store has format {settings['format']}; this kbproc reads format {FORMAT}.",
        )
    return settings


def _unusable(why: str) -> KbprocError:
    hint = f"Correct it by hand: its first line is format = {FORMAT}, [model] names the model."
    return KbprocError("store.corrupt", why, hint=hint)


def leads_to(model: Any) -> str | None:
    """What a model's settings lead to beyond what kbproc brings along.

    It is an endpoint's URL, which would get the texts; or a model's name or folder, whose files
    would be run.
    """
    if not isinstance(model, dict):
        return None
    for member in ("url", "folder"):
        if model.get(member) is not None:
            return str(model[member])
    name = model.get("name", DEFAULT_MODEL["name"])
    runs_files = model.get("kind", DEFAULT_MODEL["kind"]) in {"onnx", "sentence-transformers"}
    return str(name) if runs_files and name != DEFAULT_MODEL["name"] else None


def write_settings(path: Path, said: Mapping[str, Any], name: str = "model") -> None:
    """The table of that name, atomically and durably; all else in the file stays. An empty one
    goes. Raises OSError; input.invalid_params for what could not be read back.
    """
    from kbproc.settings import toml

    replace(path, toml.with_table(path, name, said, {"format": FORMAT}))


_REFUSED = {errno.EROFS, errno.EACCES, errno.EPERM}
_ELSEWHERE = "Copy the folder to where you can write, and name the copy with --store."


def is_read_only(folder: Path) -> bool:
    """Whether this folder, or the lock in it, can't or mustn't be written; False if there is none.

    What others may write is read only: see `exposed`.
    """
    if is_exposed(folder):
        return True
    try:
        os.close(os.open(folder / "lock", os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW))
    except OSError as error:
        if error.errno in _REFUSED:
            return True
    return folder.is_dir() and not os.access(folder, os.W_OK | os.X_OK)


def refusal(store: Path) -> KbprocError:
    """What every write to such a store is answered."""
    with contextlib.suppress(OSError):
        if (found := exposed(store)) is not None:
            why, command = found
            return KbprocError(
                "store.io",
                f"{why} So it is only read.",
                hint=f"Look whether it is as you left it, then: {command}",
                detail={"read_only": True, "command": command},
                lasting=True,
            )
    return KbprocError(
        "store.io",
        f"The store {store} is read-only.",
        hint=f"{_ELSEWHERE} Opening a copy is restoring it.",
        detail={"read_only": True},
        lasting=True,
    )
