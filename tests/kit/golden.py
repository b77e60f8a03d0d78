"""Golden transcripts as files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

from tests.kit.talk import REPO

_CUT = re.compile(r'"id": (\d+), "method": "([a-z.]+)".*…\(\d+ bytes\)$')


class Transcripts(SingleFileSnapshotExtension):
    """Stores each conversation as one plain file below golden/."""

    _write_mode = WriteMode.TEXT
    file_extension = "txt"

    @classmethod
    def dirname(cls, *, test_location: Any) -> str:
        return str(REPO / "golden" / Path(test_location.filepath).stem)

    def delete_snapshots(self, *, snapshot_location: str, snapshot_names: set[str]) -> None:
        """Deletes nothing, because a failed conversation also looks unused."""


class Told(NamedTuple):
    """A message of the server and the method of its request; "" for messages about the process."""

    message: dict[str, Any]
    method: str


def told(transcript: str) -> Iterator[Told]:
    """Yields the server's messages in a transcript."""
    methods: dict[Any, str] = {}
    for line in transcript.splitlines():
        for message in _messages(line[2:]):
            if line.startswith("> "):
                methods[str(message.get("id"))] = str(message.get("method"))
            elif line.startswith("< "):
                id = message.get("id", message.get("params", {}).get("request_id"))
                yield Told(message, methods.get(str(id), ""))


def _messages(line: str) -> list[dict[str, Any]]:
    """Returns the messages of a line or batch; of a truncated line only id and method."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return [{"id": int(id), "method": method} for id, method in _CUT.findall(line)]
    return [one for one in (value if isinstance(value, list) else [value]) if type(one) is dict]
