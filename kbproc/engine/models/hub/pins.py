"""Keeps which commit of each model on the hub a person has installed, and its files' sha256.

The settings lie beside the profiles, for all stores of the user. A file that differs from its pin
is never read.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from kbproc.base.errors import KbprocError
from kbproc.base.host import user_folder
from kbproc.base.values import NOT_READABLE, decoder

FILE = "hub-models.json"
ModelKind = Literal["embedder", "reranker"]


class Prefixes(Struct, frozen=True, kw_only=True):
    """The texts before queries and passages of a model whose own files name none."""

    query: str = ""
    document: str = ""


class Pin(Struct, frozen=True, kw_only=True):
    """An installed model. `revision`: what the person named; `files`: file → sha256."""

    commit: str
    kind: ModelKind
    revision: str | None = None
    licence: str | None = None
    bytes: int = 0
    files: dict[str, str]
    prefixes: Prefixes | None = None

    def is_of(self, revision: str | None) -> bool:
        """Returns whether a revision that somebody names is the pinned one."""
        return revision is None or revision == self.revision or self.commit.startswith(revision)


_decode = decoder(dict[str, Pin]).decode


def pins_file() -> Path:
    return user_folder("CONFIG") / "kbproc" / FILE


def pins() -> dict[str, Pin]:
    """Returns repository → pin. Raises model.unavailable for settings that can't be read."""
    path = pins_file()
    try:
        return _decode(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, *NOT_READABLE) as error:
        raise KbprocError(
            "model.unavailable",
            f"The settings of installed models can't be read: {path}: {error}.",
            hint="Move that file aside, and install the models again.",
            lasting=True,
        ) from error


def pin_of(repository: str) -> Pin | None:
    return pins().get(repository)


def keep(repository: str, pin: Pin) -> None:
    """Writes a pin into the settings. Raises store.io."""
    from kbproc.base import durable
    from kbproc.base.settings import toml

    path = pins_file()
    try:
        durable.make_folder(path.parent)
        with toml.locked(path):
            durable.replace(path, msgspec.json.encode({**pins(), repository: pin}, order="sorted"))
    except OSError as error:
        raise toml.failed(path, error) from None
