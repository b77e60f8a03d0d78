"""Reads and writes profiles, and links that bind a folder to a store.

It defines both files' keys and their valid values, finds the link at or above a folder, and refuses
files that can't be trusted.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from kbproc.base import disk
from kbproc.base.errors import KbprocError
from kbproc.base.git import in_main_worktree
from kbproc.base.settings import toml
from kbproc.base.settings.toml import Toml
from kbproc.base.settings.trust import Trust
from kbproc.base.suggest import closest, did_you_mean, nearest
from kbproc.base.unseen import UNSEEN
from kbproc.base.values import SLUG

FILE = "profiles.toml"
LINK = ".kbproc.toml"
SETTINGS = ("store", "kb", "format", "agent", "log_level")
LINKED = ("store", "kb")
CHOICES = {
    "format": ("json", "ndjson", "text", "human"),
    "log_level": ("debug", "info", "warning", "error"),
}
_HEAD = "# Written by `kbproc profile`, which keeps no comments.\n"
_OPEN = sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC"))


class Profiles(Struct, frozen=True, kw_only=True):
    """All profiles: `use` is the chosen one's name; `named` maps a name to its settings."""

    use: str | None = None
    named: dict[str, dict[str, str]] = {}

    def get(self, name: str, *, field: str = "NAME") -> dict[str, str]:
        """Returns a profile's settings.

        Raises profile.not_found with the nearest names; `field` says where the name stands.
        """
        if name not in self.named:
            raise _no_profile(name, self.named, field)
        return self.named[name]

    def as_toml(self) -> str:
        """Returns the file's text, which `read` can read."""
        from kbproc.base import toml_edit  # not above: most starts write no settings

        chosen = "" if self.use is None else toml_edit.members({"use": self.use})
        tables = [
            f"\n[profiles.{name}]\n{toml_edit.members(settings)}"
            for name, settings in sorted(self.named.items())
        ]
        return _HEAD + chosen + "".join(tables)

    def as_table(self) -> dict[str, Any]:
        """Returns the same as a table."""
        chosen = {} if self.use is None else {"use": self.use}
        return {**chosen, **({"profiles": self.named} if self.named else {})}


class Link(Struct, frozen=True, kw_only=True):
    """A file that binds its folder: `settings` are those of its `data`, the store absolute."""

    path: Path
    data: bytes
    settings: dict[str, str]


def _no_profile(name: str, names: Iterable[str], field: str) -> KbprocError:
    near = nearest(name, names)
    hint = "None is saved yet: kbproc profile save NAME --store FOLDER makes one."
    if field == "use":
        hint = "It is the one in use: kbproc profile use --none chooses none any more."
    elif near:
        hint = f"{did_you_mean(closest(name, near))}See kbproc profile list."
    return KbprocError(
        "profile.not_found",
        f"There is no profile {name!r}.",
        field=field,
        valid_values=near,
        hint=hint,
    )


def is_name(name: str) -> bool:
    return re.fullmatch(SLUG, name) is not None


def complaint(key: str, value: Any) -> str | None:
    """Returns what is wrong with a setting's value; None if nothing is."""
    if not isinstance(value, str):
        return f"{key} is {value!r}; it is a string in quotes."
    if not value:
        return f"{key} is empty; leave it out instead."
    if key in CHOICES and value not in CHOICES[key]:
        return f"{key} is {value!r}; it can be {', '.join(CHOICES[key])}."
    if key == "kb" and not re.fullmatch(SLUG, value):
        return f"kb is {value!r}; it is 2 to 64 lower-case letters, digits and hyphens."
    if key == "agent" and UNSEEN.search(value):
        return f"agent is {value!r}; it has characters that can't be seen."
    if "\0" in value or any("\ud800" <= c <= "\udfff" for c in value):
        return f"{key} is {value!r}, which is not UTF-8 or holds a zero byte."
    return None


# -------------------------------------------------------------------- profiles


def read(path: Path) -> Profiles:
    """Returns the profiles; none if there is no such file.

    Raises input.invalid_params with path and line, store.io.
    """
    file = toml.read(path)
    if file is None:
        return Profiles()
    _refuse_unknown(file, file.table, ("use", "profiles"))
    use, tables = file.table.get("use"), file.table.get("profiles", {})
    if use is not None and not isinstance(use, str):
        raise file.fault(f"use is {use!r}; it is a profile's name in quotes.", "use")
    if not isinstance(tables, dict):
        raise file.fault("profiles is no table.", "profiles")
    named = {name: _profile(file, name, table) for name, table in tables.items()}
    return Profiles(use=use, named=named)


def _profile(file: Toml, name: str, table: Any) -> dict[str, str]:
    if not is_name(name):
        message = f"{name!r} is no profile's name: 2 to 64 lower-case letters, digits, hyphens."
        raise file.fault(message, "profiles", name)
    if not isinstance(table, dict):
        raise file.fault(f"{name} is no table.", "profiles", name)
    settings = _settings(file, table, SETTINGS, ("profiles", name))
    if "store" in settings:
        settings["store"] = os.path.expanduser(settings["store"])  # noqa: PTH111  never raises
        if not Path(settings["store"]).is_absolute():
            message = f"store is {settings['store']!r}; in a profile it is an absolute path."
            raise file.fault(message, "profiles", name, "store")
    return settings


def _settings(
    file: Toml, table: dict[str, Any], valid_keys: tuple[str, ...], keys: tuple[str, ...] = ()
) -> dict[str, str]:
    _refuse_unknown(file, table, valid_keys, keys)
    for key, value in table.items():
        if (wrong := complaint(key, value)) is not None:
            raise file.fault(wrong, *keys, key)
    return {key: table[key] for key in valid_keys if key in table}


def _refuse_unknown(
    file: Toml, table: dict[str, Any], valid_keys: tuple[str, ...], keys: tuple[str, ...] = ()
) -> None:
    for key in table:
        if key not in valid_keys:
            message = f"There is no setting {key!r}; there are {', '.join(valid_keys)}."
            raise file.fault(message, *keys, key)


def save(path: Path, name: str, settings: Mapping[str, str], *, dry_run: bool = False) -> bool:
    """Saves a profile; returns whether it replaced another one.

    Raises the errors of `read`: a broken file stays as it is.
    """
    with _changing(path, dry_run) as now:
        replaced = name in now.named
        named = {**now.named, name: dict(settings)}
        _write(path, Profiles(use=now.use, named=named), dry_run)
    return replaced


def use(path: Path, name: str | None, *, dry_run: bool = False) -> str | None:
    """Chooses a profile, or none; returns the previous one. Raises profile.not_found."""
    with _changing(path, dry_run) as now:
        if name is not None:
            now.get(name)
        _write(path, Profiles(use=name, named=now.named), dry_run)
    return now.use


def delete(path: Path, name: str, *, dry_run: bool = False) -> bool:
    """Deletes a profile; returns whether it was the chosen one. Raises profile.not_found."""
    with _changing(path, dry_run) as now:
        now.get(name)
        remaining = {other: row for other, row in now.named.items() if other != name}
        was_chosen = now.use == name
        _write(path, Profiles(use=None if was_chosen else now.use, named=remaining), dry_run)
    return was_chosen


@contextlib.contextmanager
def _changing(path: Path, dry_run: bool) -> Iterator[Profiles]:
    """Yields the profiles while no other process can change them."""
    with contextlib.nullcontext() if dry_run else toml.locked(path):
        yield read(path)


def _write(path: Path, profiles: Profiles, dry_run: bool) -> None:
    if not dry_run:
        toml.write(path, profiles.as_toml(), profiles.as_table())


# ----------------------------------------------------------------------- links


def find_link(folder: Path, trust: Trust) -> tuple[Link | None, tuple[str, ...]]:
    """Returns the nearest link at or above `folder`, and sentences about links passed over.

    A cloned repository may bring a link, so one that the user has not approved is passed over. In a
    worktree of git that has no link, that of the main worktree counts.

    Raises input.invalid_params with path and line, store.io.
    """
    places = (folder, *folder.parents)
    link, notes = _first_link(places, trust)
    if link is None and (counterpart := in_main_worktree(folder)) is not None:
        in_main, root = counterpart
        shared = [place for place in (in_main, *in_main.parents) if place.is_relative_to(root)]
        link, others = _first_link(shared, trust)
        if link is not None:  # a checkout's copy of the same link is no other link
            notes = [note for note in notes if not _is_copy(note, places, link)]
        notes += others
    return link, tuple(notes)


def _first_link(places: Iterable[Path], trust: Trust) -> tuple[Link | None, list[str]]:
    """Returns the first link that is trusted, and sentences about those before it."""
    notes: list[str] = []
    for place in places:
        result = read_link(place / LINK, trust)
        if isinstance(result, Link):
            return result, notes
        if result is not None:
            notes.append(f"{result} It was passed over.")
    return None, notes


def _is_copy(note: str, places: Iterable[Path], link: Link) -> bool:
    """Returns whether a sentence is about a file with the bytes of `link`."""
    for place in places:
        path = place / LINK
        if note.startswith(f"{path} is not trusted yet"):
            with contextlib.suppress(OSError):
                return path.read_bytes() == link.data
    return False


def read_link(path: Path, trust: Trust | None = None) -> Link | str | None:
    """Returns the link; None without a file; a sentence if it can't be trusted, or `trust` lacks
    it.

    A file of another user, above a folder that all may write, would lead the user's documents into
    that user's store. So would one that others may change.
    """
    try:
        fd = os.open(path, os.O_RDONLY | _OPEN)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        return _unreadable(path, error)
    try:
        wrong = _distrusted(path, os.fstat(fd))
        if wrong is not None:
            return wrong
        data = os.read(fd, toml.MOST_BYTES + 1)
    except OSError as error:
        raise toml.failed(path, error) from None
    finally:
        os.close(fd)
    if trust is not None and not trust.has_link(path, data):
        return f"{path} is not trusted yet; look at it, then: kbproc link --trust."
    return _link_of(path, data)


def _link_of(path: Path, data: bytes) -> Link:
    file = toml.parsed(path, data)
    settings = _settings(file, file.table, LINKED)
    if "store" in settings:
        store = os.path.expanduser(settings["store"])  # noqa: PTH111  never raises
        settings["store"] = os.path.normpath(path.parent / store)
    return Link(path=path, data=data, settings=settings)


def _unreadable(path: Path, error: OSError) -> str | None:
    """Returns why the file is not trusted. Raises store.io if it is the user's own."""
    if error.errno == errno.ELOOP:
        return f"{path} is a symbolic link."
    try:
        status = os.lstat(path)
    except OSError:  # the folder can't be searched, so its contents are unknown
        return None
    wrong = _distrusted(path, status)
    if wrong is None:
        raise toml.failed(path, error)
    return wrong


def _distrusted(path: Path, status: os.stat_result) -> str | None:
    if not stat.S_ISREG(status.st_mode):
        return f"{path} is no regular file."
    if status.st_uid != os.geteuid():
        return f"{path} belongs to another user."
    if status.st_mode & stat.S_IWOTH:
        return f"{path} can be written by every user."
    return None


def own_link(folder: Path) -> Link | None:
    """Returns the link in this very folder.

    Raises the errors of `find_link`, and resource.conflict.
    """
    result = read_link(folder / LINK)
    if isinstance(result, str):
        raise KbprocError(
            "resource.conflict",
            result,
            hint="kbproc leaves it alone: look at it, and remove it by hand if it is not needed.",
            detail={"path": str(folder / LINK)},
        )
    return result


def nearest_link(folder: Path) -> Link:
    """Returns the nearest link, trusted or not.

    Raises the errors of `own_link`, and resource.not_found.
    """
    for place in (folder, *folder.parents):
        bound = own_link(place)
        if bound is not None:
            return bound
    raise KbprocError(
        "resource.not_found",
        f"There is no {LINK} in {folder}, nor above it.",
        hint="kbproc link --store FOLDER makes one.",
    )


def link(
    folder: Path, settings: Mapping[str, str], trust: Trust, *, dry_run: bool = False
) -> Link | None:
    """Binds a folder; returns the previous link. Raises the errors of `own_link`.

    The new link is trusted, because its user makes it. A store inside the folder is named relative
    to it, so that both can be moved together.
    """
    before = own_link(folder)
    values = dict(settings)
    if "store" in values and Path(values["store"]).is_relative_to(folder):
        values["store"] = str(Path(values["store"]).relative_to(folder))
    if not dry_run:
        from kbproc.base import toml_edit  # not above: most starts write no settings

        text = "# Written by `kbproc link`.\n" + toml_edit.members(values)
        toml.write(folder / LINK, text, values)
        trust.add_link(folder / LINK, text.encode())
    return before


def unlink(folder: Path, trust: Trust, *, dry_run: bool = False) -> Link:
    """Removes the link and returns it. Raises the errors of `own_link`, and resource.not_found."""
    bound = own_link(folder)
    if bound is None:
        above = find_link(folder, trust)[0]
        hint = "No folder above it is linked either."
        if above is not None:
            hint = f"It is bound by {above.path}: kbproc unlink {above.path.parent}."
        raise KbprocError("resource.not_found", f"{folder} is not linked.", hint=hint)
    if not dry_run:
        try:
            disk.unlink(bound.path)
        except OSError as error:
            raise toml.failed(bound.path, error) from None
        trust.drop_link(bound.path)
    return bound
