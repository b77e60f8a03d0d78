"""Remembers which files are not read again, because their documents were purged.

The store must not hold what was purged, and a backup of it neither; so this stands beside the
user's approvals. The file has no path and no digest of a text: only keyed digests of paths, and of
the numbers by which a renamed file is known again.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from kbproc.base import durable
from kbproc.base.hashes import blake2b
from kbproc.base.settings import toml
from kbproc.base.values import decoder

FILE = "held.json"


class Held(Struct, frozen=True, kw_only=True):
    """Held files. `key`: of the digests, in hexadecimal. `files`: store → digests."""

    key: str = ""
    files: dict[str, tuple[str, ...]] = {}


_decode = decoder(Held).decode


class PurgedFiles:
    """The files of one store that are not read again until a person names them."""

    def __init__(self, path: Path | None, store: Path) -> None:
        """Opens the file; without a path no file is held, and none can be."""
        self._path = path
        self._store = os.fsencode(os.path.realpath(store)).decode("utf-8", "backslashreplace")

    @property
    def can_hold(self) -> bool:
        return self._path is not None

    def check(self) -> Callable[[str], bool] | None:
        """Returns whether a path is held; None if none is. Raises store.io."""
        content = self._read()
        digests = frozenset(content.files.get(self._store, ()))
        if not digests:
            return None
        return lambda path: not digests.isdisjoint(_digests(content.key, path))

    def hold(self, paths: Iterable[str]) -> None:
        """Holds these files. Raises store.io."""
        self._change(lambda key, digests: digests.update(*(_digests(key, path) for path in paths)))

    def release(self, paths: Iterable[str]) -> None:
        """Lets these files be read again. Raises store.io."""
        self._change(
            lambda key, digests: digests.difference_update(*(_digests(key, p) for p in paths))
        )

    def _change(self, change: Callable[[str, set[str]], None]) -> None:
        if self._path is None:
            return
        with toml.locked(self._path):
            content = self._read()
            key = content.key or os.urandom(32).hex()
            digests = set(content.files.get(self._store, ()))
            change(key, digests)
            others = {name: each for name, each in content.files.items() if name != self._store}
            own = {self._store: tuple(sorted(digests))} if digests else {}
            data = msgspec.json.encode(replace(content, key=key, files={**others, **own}))
            try:
                durable.replace(self._path, data)
            except OSError as error:
                raise toml.failed(self._path, error) from None

    def _read(self) -> Held:
        """Returns the held files. Raises store.io for a file that can't be read or understood,
        because otherwise what was purged would come back.
        """
        if self._path is None:
            return Held()
        try:
            return _decode(self._path.read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return Held()
        except msgspec.DecodeError:
            raise toml.failed(self._path, OSError(0, "it is damaged; remove it")) from None
        except OSError as error:
            raise toml.failed(self._path, error) from None


def _digests(key: str, path: str) -> list[str]:
    """Returns the digests of the path, and of what a renamed file keeps."""
    names = [f"path\0{path}"]
    try:
        status = Path(path).lstat()
        if stat.S_ISREG(status.st_mode):
            names.append(f"file\0{status.st_dev}\0{status.st_ino}\0{status.st_mtime_ns}")
    except (OSError, ValueError):
        pass
    return [
        blake2b(os.fsencode(name), key=bytes.fromhex(key), digest_size=16).hexdigest()
        for name in names
    ]
