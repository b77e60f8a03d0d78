"""Where a backup or an export is to go.

Owns: the checks that a new path must pass, and the refusal to write over what is there.
Refuses to know: what is written there.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from kbproc.base import paths
from kbproc.base.errors import KbprocError

_FIELD = "$.params.path"

NewPath = Annotated[str, Meta(min_length=1, max_length=4096, description="must not exist yet")]


def new_place(path: str, *, cwd: Path, root: Path | None, outside: Path) -> Path:
    """The path, resolved. `outside`: the store's own folder.

    Raises resource.already_exists, resource.not_found, path.outside_root.
    """
    target = paths.locate(path, cwd=cwd, root=root, field=_FIELD)
    if target.is_relative_to(outside.resolve()):
        raise KbprocError(
            "input.invalid_params",
            f"{target} lies inside the store itself.",
            field=_FIELD,
            hint="Name a place outside of it, better still on another disk.",
        )
    if os.path.lexists(target):
        raise exists(target)
    if not target.parent.is_dir():
        raise KbprocError(
            "resource.not_found",
            f"There is no folder {target.parent}.",
            field=_FIELD,
            hint="Make that folder first, or name another.",
        )
    return target


def exists(target: Path) -> KbprocError:
    return KbprocError(
        "resource.already_exists", f"{target} exists and is not overwritten.", field="$.params.path"
    )
