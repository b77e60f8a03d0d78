"""How far a node has forgotten what the log purges, kept in its own folder.

Owns: that file. What it names of texts are hashes, and only until they have left the cluster.
Refuses to know: how anything is erased (purge.py).

The log can't tell: it is the cluster's, and each node has files of its own.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import Struct

from kbproc.base import durable
from kbproc.base.values import decoder

_NAME = "forgotten.json"


class Forgotten(Struct, frozen=True):
    """`seq`: what records up to this one purge, this folder does not hold any more.

    `due`: the record whose `sources`, and vectors under these `keys` of the pack in hexadecimal,
    may still lie where other nodes find them; 0: none.
    """

    seq: int = 0
    due: int = 0
    sources: list[str] = []
    keys: list[str] = []


_decode = decoder(Forgotten).decode


def read(store: Path) -> Forgotten | None:
    """None where nothing was ever kept, or what was kept is no use: then all is done again."""
    try:
        return _decode((store / _NAME).read_bytes())
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def keep(store: Path, found: Forgotten) -> None:
    """Raises OSError."""
    durable.replace(store / _NAME, msgspec.json.encode(found))


def drop(store: Path) -> None:
    """The folder holds another log from now on. Raises OSError."""
    (store / _NAME).unlink(missing_ok=True)
    durable.sync_folder(store)
