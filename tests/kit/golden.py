"""Golden transcripts as files."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

from kbproc.base.wording import plural
from tests.kit.talk import REPO

_CUT = re.compile(r'"id": (\d+), "method": "([a-z.]+)".*…\(\d+ bytes\)$')


class Transcripts(SingleFileSnapshotExtension):
    """Stores each conversation as one plain file below golden/."""

    _write_mode = WriteMode.TEXT
    file_extension = "txt"

    @classmethod
    def dirname(cls, *, test_location: Any) -> str:
        return str(REPO / "golden" / Path(test_location.filepath).stem)

    @classmethod
    def get_snapshot_name(cls, *, test_location: Any, index: Any = 0) -> str:
        """Returns the golden's name, which is the same in memory and over pipes."""
        name = super().get_snapshot_name(test_location=test_location, index=index)
        return name.replace("test_in_memory", "test_over_pipes")

    def delete_snapshots(self, *, snapshot_location: str, snapshot_names: set[str]) -> None:
        """Deletes nothing, because a failed conversation also looks unused."""

    def diff_lines(self, serialized_data: Any, snapshot_data: Any) -> Iterator[str]:
        yield from difference(str(snapshot_data), str(serialized_data))


AROUND = 60  # characters that a difference shows on each side


def difference(golden: str, came: str) -> Iterator[str]:
    """Yields the first place where two texts differ, and how many lines do.

    Lines of a transcript are long, so it shows only a window around the first differing character.
    """
    pairs = list(itertools.zip_longest(golden.splitlines(), came.splitlines()))
    differing = [number for number, (one, other) in enumerate(pairs) if one != other]
    if not differing:
        yield "The texts differ only in the ends of their lines."
        return
    line = differing[0]
    one, other = (text if text is not None else "(no such line)" for text in pairs[line])
    at = next(n for n, (a, b) in enumerate(itertools.zip_longest(one, other)) if a != b)
    byte = len(one[:at].encode())
    yield f"line {line + 1}, byte {byte}: the first of {plural(len(differing), 'differing line')}"
    for name, text in (("golden", one), ("came", other)):
        before, after = text[max(0, at - AROUND) : at], text[at : at + AROUND]
        head = "…" if at > AROUND else ""
        yield f"{name:>6}: {head}{before}⟦here⟧{after}{'…' if len(text) > at + AROUND else ''}"


def assert_same(golden: str, came: str) -> None:
    """Asserts that two texts are equal; an error shows the first place where they differ.

    pytest would compare long texts line by line, which takes minutes.
    """
    if golden != came:
        raise AssertionError("\n".join(difference(golden, came)))


def outdated(outputs: Mapping[Path, str]) -> Iterator[str]:
    """Yields each file with another text than it should have, and where they differ."""
    for path, expected in outputs.items():
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        if text != expected:
            yield f"{path.relative_to(REPO)}: " + "\n".join(difference(text, expected))


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
