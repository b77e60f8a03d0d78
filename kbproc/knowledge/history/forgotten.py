"""Reads and writes the file that says how far a node has erased what the log purges.

The log can't hold this position, because it is shared by the cluster and each node has files of
its own. The file names texts only by hashes, and only until they have left the cluster.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import Struct

from kbproc.base import durable
from kbproc.base.values import decoder

_NAME = "forgotten.json"


class Forgotten(Struct, frozen=True):
    """The position of a node's erasures.

    `seq`: this folder no longer holds anything that records up to this one purge.
    `due`: the record whose `sources`, and vectors under these `keys` of the pack in hexadecimal,
    may still lie where other nodes find them; 0: none.
    """

    seq: int = 0
    due: int = 0
    sources: list[str] = []
    keys: list[str] = []


_decode = decoder(Forgotten).decode


def read(store: Path) -> Forgotten | None:
    """Returns the stored position; None without a usable file: then all erasures are repeated."""
    try:
        return _decode((store / _NAME).read_bytes())
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def keep(store: Path, position: Forgotten) -> None:
    """Writes the position durably. Raises OSError."""
    durable.replace(store / _NAME, msgspec.json.encode(position))


def drop(store: Path) -> None:
    """Removes the file, because the folder holds another log from now on. Raises OSError."""
    durable.remove(store / _NAME)
    durable.sync_folder(store)
