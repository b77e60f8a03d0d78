"""Jupyter notebooks: cells in order, cited by heading and cell, with their text output."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from kbproc.base.errors import KbprocError
from kbproc.engine.sources.parse import json_values, markdown
from kbproc.engine.sources.parse.blocks import PATH, Block, Kind, Parsed, Scalar

# Characters of a cell's output that are read: a printed table, not a training log.
_OUTPUT_CHARS = 2_000


def parse(data: bytes, name: str) -> Parsed:
    """Returns the blocks of a notebook (nbformat 3 and 4). Pictures in outputs are counted.

    Raises `operation.failed` for JSON that is no notebook.
    """
    try:
        notebook = json_values.decode(data)
        cells = notebook.get("cells")
        if cells is None:  # nbformat 3
            cells = [cell for sheet in notebook["worksheets"] for cell in sheet["cells"]]
        reader = _CellReader(name)
        for number, cell in enumerate(cells, 1):
            reader.read(cell, number)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        message = f"{name} is damaged: it is not JSON ({error})."
        raise KbprocError("operation.failed", message) from error
    except (KeyError, TypeError, AttributeError) as error:
        message = f"{name} is no notebook: it has no list of cells."
        raise KbprocError("operation.failed", message) from error
    return Parsed(
        title=reader.title,
        blocks=reader.blocks,
        metadata=_metadata(notebook.get("metadata")),
        unread=reader.unread,
    )


def _metadata(metadata: Any) -> dict[str, Scalar]:
    """Returns the language of the kernel, where the notebook names it."""
    info = metadata.get("language_info") if isinstance(metadata, dict) else None
    language = info.get("name") if isinstance(info, dict) else None
    return {"language": language} if isinstance(language, str) else {}


class _CellReader:
    """Collects the blocks of cells; a section is the last heading's path and the cell's number."""

    def __init__(self, name: str) -> None:
        self.title: str | None = None
        self.blocks: list[Block] = []
        self.unread = dict.fromkeys(("pictures", "attachments", "objects", "long_outputs"), 0)
        self._name = name
        self._heading: str | None = None

    def read(self, cell: dict[str, Any], number: int) -> None:
        source = _joined(cell.get("source", cell.get("input", "")))
        kind = cell.get("cell_type")
        attachments = cell.get("attachments")
        self.unread["attachments"] += len(attachments) if isinstance(attachments, dict) else 0
        if kind == "markdown":
            self._read_markdown(source, number)
        elif kind == "heading":  # nbformat 3
            self._read_markdown(f"{'#' * _level(cell.get('level'))} {source}", number)
        else:
            self._add(source, number, "code" if kind == "code" else "prose")
            outputs = cell.get("outputs")
            self._read_outputs(outputs if isinstance(outputs, list) else [], number)

    def _read_markdown(self, source: str, number: int) -> None:
        parsed = markdown.parse(source.encode("utf-8", "replace"), self._name)
        # Markdown takes the only first-level heading of a text, here a cell, for its title.
        top = parsed.title if self.title else None
        self.title = self.title or parsed.title
        for block in parsed.blocks:
            path = PATH.join(heading for heading in (top, block.section) if heading)
            self._heading = path or self._heading
            section = self._section(number)
            self.blocks.append(msgspec.structs.replace(block, section=section, line=None))
        self.unread["pictures"] += parsed.unread.get("pictures", 0)

    def _read_outputs(self, outputs: Iterable[dict[str, Any]], number: int) -> None:
        for text in filter(str.strip, self._output_texts(outputs)):
            short = text[:_OUTPUT_CHARS]
            is_cut = len(short) < len(text)
            self.unread["long_outputs"] += is_cut
            self._add(f"Output:\n{short}" + "\n…" * is_cut, number, "code")

    def _output_texts(self, outputs: Iterable[dict[str, Any]]) -> Iterator[str]:
        for output in outputs:
            kind = output.get("output_type")
            bundle = output.get("data", output)
            if kind == "stream":
                yield _joined(output.get("text", ""))
            elif kind in {"error", "pyerr"}:
                yield f"{output.get('ename', 'error')}: {output.get('evalue', '')}"
            elif isinstance(bundle, dict):
                text = _joined(bundle.get("text/plain", bundle.get("text", "")))
                is_picture = any(key.startswith("image/") or key == "png" for key in bundle)
                self.unread["pictures"] += is_picture
                self.unread["objects"] += not text and not is_picture
                yield text

    def _add(self, text: str, number: int, kind: Kind) -> None:
        if text.strip():
            self.blocks.append(Block(text=text, section=self._section(number), kind=kind))

    def _section(self, number: int) -> str:
        cell = f"cell {number}"
        return f"{self._heading}{PATH}{cell}" if self._heading else cell


def _level(value: Any) -> int:
    return min(max(value, 1), 6) if isinstance(value, int) else 1


def _joined(source: Any) -> str:
    return "".join(source) if isinstance(source, list) else str(source)
