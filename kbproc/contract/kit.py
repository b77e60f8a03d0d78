"""Reads the kit's data: requirements, conversations, tables and schemas.

The kit lies in a checkout, in a wheel or in a folder that it was exported to. It can be exported,
too.
"""

from __future__ import annotations

import functools
import json
import shutil
from pathlib import Path
from typing import Any

_PACKAGE = Path(__file__).parents[1]
ABOUT_THE_KIT = ("contract.md", "writing-a-server.md")


class KitError(Exception):
    """The kit can't be read or written, or lacks a requested name.

    `typed` is the missing name; `values` are the valid ones.
    """

    def __init__(
        self, message: str, hint: str = "", *, typed: str = "", values: tuple[str, ...] = ()
    ) -> None:
        super().__init__(message)
        self.hint, self.typed, self.values = hint, typed, values


class Kit:
    """A kit in `folder`; its schemas and docs lie under `root`."""

    def __init__(self, folder: Path, root: Path) -> None:
        self.folder, self.schemas, self.docs = folder, root / "schemas" / "v1", root / "docs"

    @functools.cached_property
    def requirements(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = _yaml(self.folder / "requirements" / "v1.yaml")
        return rows

    @functools.cached_property
    def errors(self) -> dict[str, dict[str, Any]]:
        return {row["type"]: row for row in _json(self.folder / "errors.json")}

    @functools.cached_property
    def parts(self) -> dict[str, dict[str, Any]]:
        """Returns the parts of an implementation, by name."""
        return {row["part"]: row for row in _yaml(self.folder / "requirements" / "parts.yaml")}

    @functools.cached_property
    def rules(self) -> dict[str, dict[str, Any]]:
        return {row["id"]: row for row in self.requirements}

    def needs(self, rule: str) -> str:
        """Returns the capability that the rule is about; "" if it is about none."""
        return str(self.rules.get(rule, {}).get("needs", ""))

    @functools.cached_property
    def _optional(self) -> set[str]:
        """Returns the members that only kbproc has to have."""
        return set(_yaml(self.folder / "requirements" / "optional.yaml"))

    @functools.cache  # noqa: B019  a kit lives as long as the process
    def conversations(self, of: str = "conversations") -> list[dict[str, Any]]:
        """Returns the conversations with servers in order, or those of another folder `of`."""
        paths = sorted((self.folder / of).glob("*.yaml"))
        return [conversation for path in paths for conversation in _yaml(path)]

    def chosen(self, only: list[str], profile: list[str] | None = None) -> list[dict[str, Any]]:
        """Returns the requirements with these ids or areas, of these parts. Raises KitError."""
        for name in profile or ():
            if name not in self.parts:
                raise KitError(
                    f"There is no part {name!r}.",
                    "The parts are those of --profile.",
                    typed=name,
                    values=tuple(self.parts),
                )
        ids = [row["id"] for row in self.requirements]
        areas = dict.fromkeys(id.partition(".")[0] for id in ids)
        for name in only:
            if name not in ids and name not in areas:
                raise KitError(
                    f"There is no rule or area {name!r}.",
                    "See kbproc contract requirements.",
                    typed=name,
                    values=(*areas, *ids),
                )
        return [
            row
            for row in self.requirements
            if (not only or row["id"] in only or row["id"].partition(".")[0] in only)
            and (not profile or row["part"] in profile)
        ]

    def misfit(self, name: str, value: Any) -> str | None:
        """Returns why the value does not fit the named schema; None if it fits or there is no
        schema.
        """
        validator = self._validator(name)
        if validator is None:
            return None
        error = next(iter(validator.iter_errors(value)), None)
        if error is None:
            return None
        error = _nearest(error)
        path = "".join(f"/{part}" for part in error.instance_path)
        return f"{error.message} at {path or 'its top'} (schema {name})"[:400]

    @functools.cache  # noqa: B019  a kit lives as long as the process
    def _validator(self, name: str) -> Any:
        import jsonschema_rs

        name, _, variant = name.partition("#")
        path = self.schemas / f"{name}.json"
        if not path.is_file():
            return None
        schema = _json(path)
        if variant:
            kinds = schema.pop("anyOf")
            schema |= next(kind for kind in kinds if kind["title"].startswith(variant))
        if not name.endswith(".params"):
            schema = _without(schema, self._optional)
        return jsonschema_rs.Draft202012Validator(schema, validate_formats=True)

    def export(self, to: Path, versions: dict[str, Any]) -> list[str]:
        """Copies the whole kit and returns the paths that it wrote.

        Of the docs it has the pages that rules name, and those about the kit.
        Raises KitError for a folder that is not empty, because an export never overwrites files.
        """
        if to.exists() and (not to.is_dir() or any(to.iterdir())):
            raise KitError(f"{to} is there already.", "Name a folder that is new or empty.")
        try:
            compiled = shutil.ignore_patterns("__pycache__")
            shutil.copytree(self.folder, to, dirs_exist_ok=True, ignore=compiled)
            if not (to / "schemas").exists():
                shutil.copytree(self.schemas, to / "schemas" / "v1")
            (to / "docs").mkdir(exist_ok=True)
            for page in (*ABOUT_THE_KIT, *(row["section"] for row in self.requirements)):
                name = page.partition("#")[0]
                shutil.copyfile(self.docs / name, to / "docs" / name)
            text = json.dumps(versions, indent=2) + "\n"
            (to / "versions.json").write_text(text, encoding="utf-8")
        except OSError as error:
            raise KitError(f"{to} could not be written: {error.strerror}.") from None
        return sorted(str(path.relative_to(to)) for path in to.rglob("*") if path.is_file())


def _without(schema: Any, optional: set[str]) -> Any:
    """Returns the schema without these members among the required ones."""
    if isinstance(schema, list):
        return [_without(one, optional) for one in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {name: _without(value, optional) for name, value in schema.items()}
    required = inner.get("required")
    if isinstance(required, list):
        inner["required"] = [name for name in required if name not in optional]
    return inner


def _nearest(error: Any) -> Any:
    """Returns the error itself; where no variant of a schema fits, the first error of the variant
    that the value's tags choose, or else of the one that lacks least.
    """
    variants = getattr(error.kind, "context", None)
    if not variants or not all(variants):  # a variant without errors fits, as another one does
        return error
    depth = len(list(error.instance_path))

    def distance(errors: list[Any]) -> tuple[int, int, int]:
        own = [one for one in errors if len(list(one.instance_path)) <= depth + 1]
        tags = sum(one.kind.name in {"const", "enum"} for one in own)
        return tags, sum(len(list(one.instance_path)) == depth for one in errors), len(errors)

    return _nearest(min(variants, key=distance)[0])


def kit_in(folder: Path) -> Kit:
    """Returns an exported kit. Raises KitError."""
    if not (folder / "requirements" / "v1.yaml").is_file():
        raise KitError(f"{folder} holds no contract kit.", "kbproc contract export DIR makes one.")
    return Kit(folder, folder)


def own_kit() -> Kit:
    """Returns the kit of this kbproc: inside the package in a wheel, else beside it."""
    installed, beside = _PACKAGE / "contract" / "cases", _PACKAGE.parent / "contract"
    for folder, root in ((installed, _PACKAGE), (beside, _PACKAGE.parent)):
        if (folder / "requirements" / "v1.yaml").is_file():
            return Kit(folder, root)
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
