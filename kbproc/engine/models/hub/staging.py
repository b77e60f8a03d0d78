"""Lays the files of a pinned model out for its export, after each was compared with its sha256.

What else lies in the hub's cache is not seen by the export.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from kbproc.base.errors import KbprocError
from kbproc.base.values import object_in
from kbproc.engine.models.hub.cache import differing
from kbproc.engine.models.hub.pins import Prefixes

_PROMPTS = "config_sentence_transformers.json"


@contextlib.contextmanager
def staged(
    source: Path, beside: Path, files: Mapping[str, str], prefixes: Prefixes | None
) -> Iterator[Path]:
    """Yields the source of an export; of a pinned model a folder in `beside` with its files alone.

    `files`: file → sha256. Raises model.unavailable for a file that is not the pinned one.
    """
    if not files:
        yield source
        return
    if wrong := differing(source, files):
        raise KbprocError(
            "model.unavailable",
            f"{source / wrong[0]} is not the file that was installed: its sha256 differs",
            hint="kbproc model install NAME brings the right one.",
        )
    with tempfile.TemporaryDirectory(dir=beside) as folder:
        for file in files:
            _lay_out(source / file, Path(folder) / file)
        _add_prompts(Path(folder) / _PROMPTS, prefixes)
        yield Path(folder)


def _lay_out(file: Path, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    if ".onnx" in file.name:  # onnx follows no link to the weights beside a graph
        shutil.copyfile(file, place)
    else:
        place.symlink_to(file.resolve())


def _add_prompts(file: Path, prefixes: Prefixes | None) -> None:
    """Writes the prefixes of a model's card, if its own files name none."""
    content = object_in(file)
    prompts = content.get("prompts")
    if prefixes is None or (isinstance(prompts, dict) and any(prompts.values())):
        return
    added = {"query": prefixes.query, "document": prefixes.document}
    file.unlink(missing_ok=True)
    file.write_bytes(msgspec.json.encode({**content, "prompts": added}))
