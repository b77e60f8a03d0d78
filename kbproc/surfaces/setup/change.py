"""Plans a change of a client's settings, shows it, asks a person, and writes it.

All other settings stay. A file that can't be read in its format is not changed. A file in kbproc's
own folder of settings records what a removal restores, because a client's settings do not show it.
"""

from __future__ import annotations

import contextlib
import difflib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from kbproc.base import edits, json_edit, person, toml_edit
from kbproc.base.errors import KbprocError
from kbproc.base.suggest import closest, did_you_mean
from kbproc.base.values import NOT_READABLE, Decoder

PROJECT_MODE = 0o644  # because others work on the project, too
USER_MODE = 0o600
_MOST_PLANS = 100
Flags = Mapping[str, Sequence[str | bool]]  # flag → its values, in their order
Show = Callable[[str], object]


class Editor(Protocol):
    """Changes a text in place; see json_edit and toml_edit. Each may raise ValueError."""

    def parse(self, text: str) -> Any: ...
    def change(self, text: str, path: tuple[str, ...], value: Mapping[str, Any]) -> str: ...
    def append(self, text: str, path: tuple[str, ...], value: Mapping[str, Any]) -> str: ...
    def drop(self, text: str, path: tuple[str | int, ...]) -> str: ...
    def drop_empty(self, text: str, path: tuple[str, ...]) -> str: ...


def editor_of(path: str | Path) -> Editor:
    """Returns the editor of the file's format."""
    return toml_edit if Path(path).suffix == ".toml" else json_edit


def parsed(editor: Editor, text: str) -> dict[str, Any]:
    """Returns the settings. Raises ValueError."""
    settings = editor.parse(text)
    if not isinstance(settings, dict):
        raise ValueError("it is no object")
    return settings


def text_of(path: Path) -> str | None:
    """Returns a client's file; None without one. Raises ValueError for one that can't be read."""
    try:
        data = edits.read(path)
        return None if data is None else data.decode()
    except OSError as error:
        raise ValueError(error.strerror or str(error)) from None


def program_words(*, portable: bool) -> list[str]:
    """Returns the command; a full path if possible, because desktop programs have another PATH."""
    import shutil

    path = shutil.which("kbproc")
    if path is None:
        return [sys.executable, "-m", "kbproc"]
    return ["kbproc"] if portable else [path]


def unknown_client(name: str, names: Iterable[str], *, message: str, hint: str) -> KbprocError:
    names = list(names)
    return KbprocError(
        "input.invalid_params",
        message,
        field="CLIENT",
        valid_values=names,
        hint=did_you_mean(closest(name, names)) + hint,
    )


class InstallationRecord(Struct, frozen=True, kw_only=True):
    """A file of kbproc with one member for each file of settings that an installation changed."""

    path: Path
    decoder: Decoder[dict[str, Any]]

    def of(self, settings: Path) -> Any:
        """Returns the member; None without one, and where the record can't be read."""
        try:
            return self._members(edits.read(self.path)).get(str(settings.resolve()))
        except OSError:
            return None

    def keep(self, settings: Path, member: Any) -> None:
        """Sets the member, or removes it for None, also while other processes do so.

        A record that can't be written stays as it is, and one that can't be read is begun anew.
        """
        name = str(settings.resolve())

        def change(data: bytes | None) -> bytes | None:
            members = self._members(data)
            members.pop(name, None)
            if member is not None:
                members[name] = member
            return msgspec.json.format(msgspec.json.encode(members)) if members else None

        with contextlib.suppress(OSError):
            edits.edit(self.path, change)

    def _members(self, data: bytes | None) -> dict[str, Any]:
        try:
            return self.decoder.decode(data or b"{}")
        except NOT_READABLE:
            return {}


class Change(Struct, frozen=True, kw_only=True):
    """A file of settings before and after. `before` and `after` are None where there is none.

    `mode`: of a new file. `record` keeps `member` once the file is written.
    """

    path: Path
    before: str | None
    after: str | None
    mode: int = USER_MODE
    record: InstallationRecord | None = None
    member: Any = None

    @property
    def is_done(self) -> bool:
        return self.after in {self.before, self.before or ""}

    def shown(self) -> str:
        """Returns the change as a unified diff."""
        before = (self.before or "").splitlines(keepends=True)
        after = (self.after or "").splitlines(keepends=True)
        old, new = (
            "/dev/null" if text is None else str(self.path) for text in (self.before, self.after)
        )
        return "".join(difflib.unified_diff(before, after, old, new))

    def write(self) -> bool:
        """Writes the file; returns False if another program has changed it since it was planned.

        Raises store.io.
        """
        before, after = (
            None if text is None else text.encode() for text in (self.before, self.after)
        )
        folder_mode = 0o755 if self.mode == PROJECT_MODE else 0o700
        try:
            is_written = edits.write(
                self.path, before, after, mode=self.mode, folder_mode=folder_mode
            )
        except OSError as error:
            message = f"{self.path} can't be written: {error.strerror}."
            raise KbprocError("store.io", message) from None
        if is_written and self.record is not None:
            self.record.keep(self.path, self.member)
        return is_written


def write_change(
    plan: Callable[[], Change],
    show: Show,
    *,
    done: str,
    agreed: bool,
    notes: Sequence[str] = (),
) -> int:
    """Shows the change and writes it; a save of another program since the plan makes a new plan.

    `agreed`: without a question. Returns the exit code. Raises input.confirmation_required,
    store.io, and what `plan` raises.
    """
    for _ in range(_MOST_PLANS):
        change = plan()
        if change.is_done:
            show(f"{change.path} {done}.\n")
            return 0
        show("".join([change.shown(), *(f"{note}\n" for note in notes)]))
        if not agreed and not (person.is_there() and _agrees()):
            raise KbprocError(
                "input.confirmation_required",
                f"Nothing was written to {change.path}.",
                hint="To write what is shown, add --yes to the same command.",
            )
        if change.write():
            show(f"{'Removed' if change.after is None else 'Written'}: {change.path}\n")
            return 0
        show(f"Another program has changed {change.path} meanwhile, so this is planned anew.\n")
    raise KbprocError(
        "store.io",
        f"Nothing was written to {change.path}, because another program keeps changing it.",
        hint="End that program, then repeat the command.",
    )


def _agrees() -> bool:
    sys.stderr.write("Write this? [y/N] ")
    sys.stderr.flush()
    return person.agrees(person.typed())
