"""The kit's data, as it lies in a checkout, in a wheel or in a folder that it was exported to.

Owns: finding it, reading requirements, conversations, tables and schemas, and exporting it.
Refuses to know: what is judged by it, and how.
"""

from __future__ import annotations

import functools
import json
import shutil
from pathlib import Path
from typing import Any

_PACKAGE = Path(__file__).parents[2]


class KitError(Exception):
    """The kit can't be read or written, or what was asked of it is not in it.

    `typed`: a name that is not in it, and `values` those that are.
    """

    def __init__(
        self, message: str, hint: str = "", *, typed: str = "", values: tuple[str, ...] = ()
    ) -> None:
        super().__init__(message)
        self.hint, self.typed, self.values = hint, typed, values


class Kit:
    """`folder`: where the kit lies; `root`: where schemas and docs lie."""

    def __init__(self, folder: Path, root: Path) -> None:
        self.folder, self.schemas, self.docs = folder, root / "schemas" / "v1", root / "docs"

    @functools.cached_property
    def requirements(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = _yaml(self.folder / "requirements" / "v1.yaml")
        return found

    @functools.cached_property
    def errors(self) -> dict[str, dict[str, Any]]:
        return {row["type"]: row for row in _json(self.folder / "errors.json")}

    @functools.cache  # noqa: B019  a kit lives as long as the process
    def conversations(self, of: str = "conversations") -> list[dict[str, Any]]:
        """In order; `of`: `conversations` with servers, or `clients`."""
        paths = sorted((self.folder / of).glob("*.yaml"))
        return [one for path in paths for one in _yaml(path)]

    def chosen(self, only: list[str]) -> list[dict[str, Any]]:
        """The requirements that are named, by id or by area. Raises KitError."""
        known = [row["id"] for row in self.requirements]
        areas = dict.fromkeys(id.partition(".")[0] for id in known)
        for name in only:
            if name not in known and name not in areas:
                raise KitError(
                    f"There is no rule or area {name!r}.",
                    "See kbproc contract requirements.",
                    typed=name,
                    values=(*areas, *known),
                )
        return [
            row
            for row in self.requirements
            if not only or row["id"] in only or row["id"].partition(".")[0] in only
        ]

    def misfit(self, name: str, value: Any) -> str | None:
        """Why the value does not fit the schema of that name; None if it does, or there is none."""
        validator = self._validator(name)
        if validator is None:
            return None
        error = next(iter(validator.iter_errors(value)), None)
        if error is None:
            return None
        path = "".join(f"/{part}" for part in error.instance_path)
        return f"{error.message} at {path or 'its top'} (schema {name})"[:400]

    @functools.cache  # noqa: B019  a kit lives as long as the process
    def _validator(self, name: str) -> Any:
        import jsonschema_rs

        path = self.schemas / f"{name}.json"
        if not path.is_file():
            return None
        return jsonschema_rs.Draft202012Validator(_json(path), validate_formats=True)

    def export(self, to: Path, versions: dict[str, Any]) -> list[str]:
        """Copies all of it; returns what it wrote. Raises KitError for a folder that holds
        anything: nothing is ever written over.
        """
        if to.exists() and (not to.is_dir() or any(to.iterdir())):
            raise KitError(f"{to} is there already.", "Name a folder that is new or empty.")
        try:
            shutil.copytree(self.folder, to, dirs_exist_ok=True)
            for source, name in ((self.schemas, "schemas/v1"), (self.docs, "docs")):
                if not (to / name).exists():
                    shutil.copytree(source, to / name)
            told = json.dumps(versions, indent=2) + "\n"
            (to / "versions.json").write_text(told, encoding="utf-8")
        except OSError as error:
            raise KitError(f"{to} could not be written: {error.strerror}.") from None
        return sorted(str(path.relative_to(to)) for path in to.rglob("*") if path.is_file())


def kit_in(folder: Path) -> Kit:
    """An exported one. Raises KitError."""
    if not (folder / "requirements" / "v1.yaml").is_file():
        raise KitError(f"{folder} holds no contract kit.", "kbproc contract export DIR makes one.")
    return Kit(folder, folder)


def own_kit() -> Kit:
    """The one that came with this kbproc: in a wheel inside the package, else beside it."""
    for root in (_PACKAGE, _PACKAGE.parent):
        if (root / "contract" / "requirements" / "v1.yaml").is_file():
            return Kit(root / "contract", root)
    raise KitError("This installation holds no contract kit.", "Install kbproc from its wheel.")


def _yaml(path: Path) -> Any:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # reads eight times as fast
    try:
        return yaml.load(path.read_text(encoding="utf-8"), loader)  # noqa: S506  both are safe
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise KitError(f"{path} can't be read: {error}") from None


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise KitError(f"{path} can't be read: {error}") from None
