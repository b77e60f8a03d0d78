"""Makes a store look as if its machine had stopped in the middle of a write."""

from __future__ import annotations

from pathlib import Path


class Tearing:
    """The files under `folder` at one moment, so that what was written later can be torn.

    What grew keeps half of what was added; whatever else was changed is as it was. So a machine
    leaves a store that appends, because it had acknowledged nothing of what was torn.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[Path, bytes] = {}

    def mark(self) -> None:
        self._files = self._read()

    def tear(self) -> bool:
        """Tears what was written since `mark`; returns False if no file has only grown."""
        torn = False
        for path, new in self._read().items():
            old = self._files.get(path)
            if old is None:
                path.unlink(missing_ok=True)
            elif new != old:
                is_longer = len(new) > len(old) + 1 and new.startswith(old)
                torn |= is_longer
                path.write_bytes(new[: (len(old) + len(new)) // 2] if is_longer else old)
        return torn

    def _read(self) -> dict[Path, bytes]:
        """Returns the content of each file that stays while it reads."""
        contents = {}
        for path in self._folder.rglob("*"):
            try:
                if path.is_file() and not path.is_symlink():
                    contents[path] = path.read_bytes()
            except OSError:
                continue
        return contents
