"""Takes a store's folder, reads and writes its store.toml, and checks that it is safe.

It recognises stores, knows the format version and the default model, finds links, modes and
settings that make a store unsafe, refuses writes to a read-only store, and measures its size.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbproc.base import disk
from kbproc.base.durable import make_folder, replace, write_new
from kbproc.base.errors import KbprocError, is_lasting
from kbproc.base.paths import from_here, printable
from kbproc.engine.log.lease import FileLease, Lease

if TYPE_CHECKING:
    from kbproc.base.settings.trust import Trust

FORMAT = 2
# The last commit whose program exports the stores of unreleased versions: sources in `blobs`. It
# imports their exports, too.
LAST_EXPORTER = "fce81a0b"
# Names that a folder may hold before it becomes a store: a half-made store's, and a mount's own.
_BEGINNINGS = ("lock", "kbproc.sock", "store.toml", ".gitignore", "lost+found")
# Tables of store.toml beside [model]: the model that a change leads to, and the one before.
NEXT, FORMER = "next_model", "former_model"
DEFAULT_MODEL = {"kind": "onnx", "name": "all-MiniLM-L6-v2"}


def take_folder(folder: Path, pid: int) -> Lease:
    """Makes the folder if need be; returns the lease on it, which this process holds.

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
        make_folder(folder)
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
    """Returns True for a store, even if it has lost its settings or its log."""
    return any((folder / name).exists() for name in ("store.toml", "log"))


def require_store(folder: Path, *, named: bool = True) -> None:
    """Raises resource.not_found if there is no store and no process is making one.

    `named`: the user has named the folder, so the hint repeats its name.
    """
    if not is_store(folder) and not (folder / "lock").exists():
        place = from_here(folder)
        raise KbprocError(
            "resource.not_found",
            f"There is no store in {place}.",
            hint="Check the path. Adding documents makes a store: kbproc --store "
            f"{shlex.quote(place)} add DOCS."
            if named
            else "Adding documents makes one: kbproc add DOCS.",
            detail={"store": str(folder)},
        )


def _refuse_foreign(folder: Path) -> None:
    """Raises resource.already_exists for a folder of something else, OSError."""
    if is_store(folder):
        return
    names = (path.name for path in folder.iterdir())
    names_found = sorted(name for name in names if not name.startswith(_BEGINNINGS))
    if names_found:
        raise KbprocError(
            "resource.already_exists",
            f"{folder} is no store and not empty: it holds {names_found[0]!r}.",
            hint="Name an empty or a new folder with --store or KBPROC_STORE.",
            detail={"store": str(folder)},
        )


# Part of a store → how many folders deep a link in it would redirect a write.
_PARTS = {
    "store.toml": 0,
    ".gitignore": 0,
    "lock": 0,
    "kbproc.sock": 0,
    "log": 1,
    "sources": 2,
    "vectors": 1,
    "views": 4,
    "notes": 1,
    "damaged": 2,
    "hooks": 2,
}


def check_links(folder: Path) -> None:
    """Raises store.io for a link, pipe or device in the place of a store's file, and names it.

    Call it before a store is opened, but not for an overlay, which is made of links. A link's
    target would be read, written and deleted with the rights of the user who opens the store; a
    pipe would block.
    """
    for name, depth in _PARTS.items():
        odd = _odd_in(folder / name, depth)
        if odd is not None:
            is_link = odd.is_symlink()
            reason = "a symlink: no file of a store is opened through one"
            raise KbprocError(
                "store.io",
                f"{printable(odd)} is {reason if is_link else 'no regular file'}.",
                hint="Find out who made it. Put the file or folder itself in its place, or remove "
                f"{'the link' if is_link else 'it'}; agent.update names a notes folder that lies "
                "elsewhere.",
                detail={"path": printable(odd)},
                lasting=True,
            )


def _odd_in(path: Path, depth: int) -> Path | None:
    """Returns the first symlink, pipe or device at `path`, or up to `depth` folders below it."""
    try:
        mode = path.lstat().st_mode
    except OSError:
        return None
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISSOCK(mode)):
        return path
    if depth and stat.S_ISDIR(mode):
        with contextlib.suppress(FileNotFoundError, PermissionError), os.scandir(path) as entries:
            for entry in entries:
                is_file = entry.is_file(follow_symlinks=False)
                if is_file or (depth == 1 and entry.is_dir(follow_symlinks=False)):
                    continue  # no further look-up, because each source may have a folder
                odd = _odd_in(Path(entry.path), depth - 1)
                if odd is not None:
                    return odd
    return None


def exposed(folder: Path) -> tuple[str, str] | None:
    """Returns why another user could change the store, and the command that prevents it.

    None if no other user can. Raises OSError.
    """
    status = folder.lstat()
    if status.st_uid != os.geteuid():
        return (
            f"The store {folder} belongs to another user (uid {status.st_uid}).",
            f"chown -R {os.geteuid()} {shlex.quote(str(folder))}",
        )
    path, mode = _writable_by_others(str(folder), status.st_mode)
    if path is not None:
        return (
            f"Others may write to {path} ({stat.S_IMODE(mode):o}).",
            f"chmod -R go-rwx {shlex.quote(str(folder))}",
        )
    return None


def _writable_by_others(folder: str, mode: int) -> tuple[str | None, int]:
    """Returns the folder, or the first of its parts, that others may write to, and its mode."""
    if mode & 0o022:
        return folder, mode
    with os.scandir(folder) as entries:  # before every write: a look at each name takes longer
        for entry in entries:
            if entry.name not in _PARTS:
                continue
            try:
                mode = entry.stat(follow_symlinks=False).st_mode
            except FileNotFoundError:  # another process has removed it
                continue
            if mode & 0o022 and not stat.S_ISLNK(mode):
                return entry.path, mode
    return None, 0


def is_exposed(folder: Path) -> bool:
    """Returns True if another user could change the store; see `exposed`. False if it is gone."""
    try:
        return exposed(folder) is not None
    except OSError:
        return False


def keep_private(folder: Path) -> None:
    """Removes other users' access, which a copy may have opened. Raises OSError."""
    _keep_private(folder, folder.lstat().st_mode)
    for parent, folders, names in os.walk(folder):
        for name in (*folders, *names):
            path = os.path.join(parent, name)  # noqa: PTH118  a Path for each file takes long
            _keep_private(path, os.lstat(path).st_mode)


def _keep_private(path: str | Path, mode: int) -> None:
    if mode & 0o077 and not stat.S_ISLNK(mode):
        os.chmod(path, stat.S_IMODE(mode) & 0o700)  # noqa: PTH101


def size_of(folder: Path) -> int:
    """Returns the bytes of all files below; files that vanish during the count are skipped."""
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            status = path.stat()
            total += status.st_size if stat.S_ISREG(status.st_mode) else 0
    return total


def read_settings(path: Path, model: dict[str, Any] | None) -> dict[str, Any]:
    """Returns the settings in store.toml; writes default ones with `model` if there are none.

    Raises store.io, store.corrupt, store.incompatible.
    """
    if not path.exists():
        hide_from_git(path.parent)
        write_settings(path, model or DEFAULT_MODEL)
    return _settings_in(path)


def check_settings(path: Path) -> None:
    """Raises store.io, store.corrupt, store.incompatible for a store.toml that can't be used."""
    if path.exists():
        _settings_in(path)


def _settings_in(path: Path) -> dict[str, Any]:
    from kbproc.base.settings import toml  # not above: attached processes read no settings

    try:
        document = toml.read(path)
    except KbprocError as error:
        if error.type == "store.io":
            raise
        raise _unusable(error.message) from None
    settings = {} if document is None else document.table
    if "format" not in settings:
        raise _unusable(f"{path} names no format.")
    former = (path.parent / name for name in ("blobs", "blobs.journal"))
    if settings["format"] != FORMAT or any(map(Path.exists, former)):
        raise _incompatible(settings["format"])
    return settings


def _incompatible(number: Any) -> KbprocError:
    is_later = isinstance(number, int) and number > FORMAT
    return KbprocError(
        "store.incompatible",
        f"The store has format {number}; this kbproc reads format {FORMAT}."
        if number != FORMAT
        else "The store keeps its sources as a version before the first release did.",
        hint=None
        if is_later
        else "A version before the first release has written it. The commit "
        f"{LAST_EXPORTER} of kbproc exports it (kbproc store export FILE); import the file here.",
    )


def _unusable(why: str) -> KbprocError:
    hint = f"Correct it by hand: its first line is format = {FORMAT}, [model] names the model."
    return KbprocError("store.corrupt", why, hint=hint)


def leads_to(model: Any) -> str | None:
    """Returns the foreign endpoint or model that a model's settings name; None without one.

    It is an endpoint's URL, which would get the texts; or a model's name or folder, whose files
    would be run. The model that comes with kbproc is not foreign.
    """
    if not isinstance(model, dict):
        return None
    for member in ("url", "folder"):
        if model.get(member) is not None:
            return str(model[member])
    name = model.get("name", DEFAULT_MODEL["name"])
    runs_files = model.get("kind", DEFAULT_MODEL["kind"]) in {"onnx", "sentence-transformers"}
    return str(name) if runs_files and name != DEFAULT_MODEL["name"] else None


def approval_problem(store: Path, settings: Any, trust: Trust) -> KbprocError | None:
    """Returns the reason why the store's model is not used; None for an approved one.

    The author of the store may have chosen an endpoint to receive the texts.
    """
    named = leads_to(settings)
    if named is None or trust.has_model(store, settings):
        return None
    what, used, so = "model", "loaded", "you trust the author of its files"
    if "url" in settings:
        what, used, so = "endpoint", "called", "your texts may be sent there"
    return KbprocError(
        "model.unavailable",
        f"The store's settings name the {what} {named}; as they are you have not approved them: it "
        f"is not {used}.",
        hint=f"If {so}: kbproc link --trust --store {shlex.quote(str(store))}, then open the store "
        "again. Until then only words are searched.",
        lasting=True,
    )


def write_settings(path: Path, table: Mapping[str, Any], name: str = "model") -> None:
    """Writes the table of that name, atomically and durably; all else in the file stays.

    An empty table is removed. Raises OSError; input.invalid_params for values that could not be
    read back.
    """
    from kbproc.base.settings import toml

    replace(path, toml.with_table(path, name, table, {"format": FORMAT}))


def settings_without(path: Path, name: str) -> bytes:
    """Returns store.toml without the table of that name.

    Raises OSError, and store.corrupt or store.io for a file that can't be read.
    """
    from kbproc.base.settings import toml

    return toml.with_table(path, name, {}, {"format": FORMAT})


def hide_from_git(folder: Path) -> None:
    """Has git leave a new store out, if it lies in a work tree, because it holds texts.

    A `.gitignore` that is there stays. Raises OSError.
    """
    if any((above / ".git").exists() for above in folder.absolute().parents):
        with contextlib.suppress(FileExistsError):
            write_new(str(folder / ".gitignore"), b"*\n")


_REFUSED = {errno.EROFS, errno.EACCES, errno.EPERM}
_ELSEWHERE = "Copy the folder to where you can write, and name the copy with --store."


def is_read_only(folder: Path) -> bool:
    """Returns True if the folder, or the lock in it, can't or mustn't be written.

    False if there is no folder. A store that other users may change is read-only: see `exposed`.
    """
    if is_exposed(folder):
        return True
    try:
        disk.close(disk.open(folder / "lock", os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW))
    except OSError as error:
        if error.errno in _REFUSED:
            return True
    return folder.is_dir() and not os.access(folder, os.W_OK | os.X_OK)


def refusal(store: Path) -> KbprocError:
    """Returns the error for every write to a read-only store."""
    with contextlib.suppress(OSError):
        if (exposure := exposed(store)) is not None:
            why, command = exposure
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
