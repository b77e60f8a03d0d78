"""Jupyter notebooks: cells in order, cited by heading and cell, with their text output."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec

from kbproc.base.errors import KbprocError
from kbproc.engine.sources.parse import html, json_values, markdown
from kbproc.engine.sources.parse.blocks import PATH, Block, Kind, Parsed, Scalar
from kbproc.engine.sources.parse.terminal import on_screen, without_codes

# Characters of a cell's output that are read, one half at its start and one at its end: a printed
# table, not a training log.
OUTPUT_CHARS = 2_000
# The plain text of an object that has none: "<IPython.core.display.HTML object>".
_NAMELESS = re.compile(r"<[\w.]+(?: object)?(?: at 0x[0-9a-f]+)?>")
_RICH = ("text/markdown", "text/html", "text/latex")
# Lines of a traceback that name a call, and the line of code at which it failed.
_CALL = re.compile(r"(?:Cell |File |Input |<ipython-|~?/).*")
_FAILED_LINE = re.compile(r"-+> *\d+(?P<code>.*)")


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
        unread=dict(+reader.unread),
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
        self.unread = Counter[str]()
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
        stream = ""
        for output in outputs:
            if output.get("output_type") == "stream":  # a progress bar is many outputs
                stream += _joined(output.get("text", ""))
                continue
            self._add_output(stream, number)
            stream = ""
            self._read_output(output, number)
        self._add_output(stream, number)

    def _read_output(self, output: dict[str, Any], number: int) -> None:
        if output.get("output_type") in {"error", "pyerr"}:
            self._add_output(_failure(output), number)
            return
        bundle = output.get("data", output)
        if not isinstance(bundle, dict):
            return
        text = _joined(bundle.get("text/plain", bundle.get("text", "")))
        is_picture = any(key.startswith("image/") or key == "png" for key in bundle)
        rich = next((kind for kind in _RICH if bundle.get(kind)), None)
        if rich and (not text.strip() or _NAMELESS.fullmatch(text.strip())):
            self._read_rich(rich, _joined(bundle[rich]), number)
        else:
            self.unread["objects"] += not text and not is_picture
            self._add_output(text, number)
        self.unread["pictures"] += is_picture

    def _read_rich(self, kind: str, source: str, number: int) -> None:
        if kind == "text/latex":
            self._add_output(source, number)
            return
        data = source.encode("utf-8", "replace")
        reader = html if kind == "text/html" else markdown
        parsed = reader.parse(data, "output.html" if kind == "text/html" else "output.md")
        kinds = {block.kind for block in parsed.blocks}
        text = "\n\n".join(block.text for block in parsed.blocks)
        self._add_output(text, number, kinds.pop() if len(kinds) == 1 else "prose")
        self.unread.update(parsed.unread)

    def _add_output(self, text: str, number: int, kind: Kind = "code") -> None:
        text, codes = without_codes(text)
        text = on_screen(text)
        self.unread["terminal_codes"] += codes
        is_cut = len(text) > OUTPUT_CHARS
        if is_cut:
            half = OUTPUT_CHARS // 2
            text = f"{text[:half]}\n…\n{text[-half:]}"
        self.unread["long_outputs"] += is_cut
        if text.strip():
            self._add(f"Output:\n{text}", number, kind)

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


def _failure(output: dict[str, Any]) -> str:
    """Returns an error, and below it the calls of its traceback with the lines that failed."""
    lines = [f"{output.get('ename', 'error')}: {output.get('evalue', '')}"]
    trace = output.get("traceback")
    text = "\n".join(map(str, trace)) if isinstance(trace, list) else ""
    for line in without_codes(text)[0].split("\n"):
        if failed := _FAILED_LINE.match(line.strip()):
            lines.append(f"    {failed['code'].strip()}")
        elif _CALL.match(line):
            lines.append(line.rstrip())
    return "\n".join(lines)
