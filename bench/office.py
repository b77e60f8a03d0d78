"""`python -m bench.office [MARKITDOWN]`: how often tables, slides, notebooks and mails are found.

It writes files with what every Python knows of itself (status codes, media types, docstrings, the
language reference), asks the 60 questions of office.json, and prints the share whose answer is in
one of the first five hits. With a `markitdown` program, the plain text that it makes of the same
files is asked the same. A hit answers if it is of the right file and holds all phrases of the
answer; for a table, the heads of its columns count in a column of their own.
"""

from __future__ import annotations

import argparse
import csv
import errno
import inspect
import json
import mimetypes
import os
import subprocess
import sys
import tempfile
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from email.message import EmailMessage
from html.entities import codepoint2name
from http import HTTPStatus
from importlib import import_module
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any, NamedTuple

from bench.bulk_legs import answered, call
from kbproc.base.host import Host
from kbproc.knowledge.app.library import Library

_QUESTIONS = json.loads((Path(__file__).parent / "office.json").read_text())
_KINDS = ("tables", "slides", "notebooks", "mail")
_HITS = 5
_PEOPLE = ("Ada", "Grace", "Barbara", "Edsger", "Donald", "Niklaus")


class Outcome(NamedTuple):
    """A question's outcome: a hit holds the answer; a hit holds it with its columns' heads."""

    answer: bool
    with_heads: bool


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.office")
    parser.add_argument("markitdown", nargs="?", type=Path, help="the program to compare with")
    program = parser.parse_args().markitdown
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        files = write_files(folder / "files")
        outcomes = {"kbproc": ask(folder / "store", folder / "files")}
        if program:
            texts = folder / "texts"
            convert(program, files, texts)
            outcomes["markitdown's text"] = ask(folder / "texts-store", texts)
    for name, figures in outcomes.items():
        for line in table(name, figures):
            sys.stdout.write(line + "\n")
    return 0


def table(name: str, outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Yields the share of each kind of file, of questions with an answer in the first hits."""
    for kind in (*_KINDS, "all"):
        chosen = [
            each
            for each, question in zip(outcomes, _QUESTIONS, strict=True)
            if kind in ("all", question["kind"])
        ]
        answers = sum(each.answer for each in chosen)
        heads = sum(each.with_heads for each in chosen)
        yield f"{name:20} {kind:10} {answers}/{len(chosen)}, with heads {heads}/{len(chosen)}"


def ask(store: Path, folder: Path) -> list[Outcome]:
    """Ingests the folder and returns what the first hits of each question hold."""
    library = Library.open(store, host=Host(), cache=Path.home() / ".cache" / "kbproc")
    try:
        call(library, "doc.ingest", paths=[str(folder)])
        library.embedding.start()
        library.embedding.drain(lambda stage, done, total: None)
        return [_outcome(library, question) for question in _QUESTIONS]
    finally:
        library.close()


def _outcome(library: Library, question: dict[str, Any]) -> Outcome:
    results = answered(library, "search", query=question["question"], limit=_HITS).data.results
    texts = [
        _plain(f"{hit.source.title} {hit.source.section or ''} {hit.text}")
        for hit in results
        if Path(hit.source.path or "").name.startswith(question["file"])
    ]
    answer = [_plain(phrase) for phrase in question["answer"]]
    heads = [_plain(head) for head in question.get("heads", [])]
    return Outcome(
        any(all(phrase in text for phrase in answer) for text in texts),
        any(all(phrase in text for phrase in [*answer, *heads]) for text in texts),
    )


def _plain(text: str) -> str:
    return " ".join(text.replace("\\", "").casefold().split())


def convert(program: Path, files: Iterable[Path], folder: Path) -> None:
    """Writes the plain text of each file, as `program` makes it."""
    folder.mkdir()
    for path in files:
        process = subprocess.run([program, path], capture_output=True, text=True, check=True)
        (folder / f"{path.name}.md").write_text(process.stdout)


# ------------------------------------------------------------------ the files


def write_files(folder: Path) -> list[Path]:
    """Writes all files and returns their paths."""
    folder.mkdir(parents=True)
    _write_tables(folder)
    for name in ("shutil", "statistics", "pathlib", "itertools", "functools"):
        _write_slides(folder / f"{name}.pptx", name)
    for name in ("heapq", "random", "textwrap", "fractions", "calendar", "bisect"):
        (folder / f"{name}.ipynb").write_text(json.dumps(_notebook(name)))
    for number, topic in enumerate(_TOPICS):
        (folder / f"{topic}.eml").write_bytes(bytes(_mail(topic, number)))
    return sorted(folder.iterdir())


_TOPICS = [
    *("assert", "comparisons", "continue", "del", "dynamic-features", "exceptions", "global"),
    *("lambda", "naming", "nonlocal", "raise", "slicings", "truth", "while", "with", "yield"),
]


def _write_tables(folder: Path) -> None:
    import xlsxwriter

    statuses = [(each.value, each.phrase, each.description) for each in HTTPStatus]
    kinds = sorted(mimetypes.MimeTypes().types_map[True].items())
    with xlsxwriter.Workbook(folder / "web.xlsx") as book:
        _fill(book.add_worksheet("Status codes"), ["Status code", "Name", "Meaning"], statuses)
        _fill(book.add_worksheet("Media types"), ["Extension", "Media type"], kinds)
    errors = [
        (number, name, os.strerror(number)) for number, name in sorted(errno.errorcode.items())
    ]
    with xlsxwriter.Workbook(folder / "errors.xlsx") as book:
        _fill(book.add_worksheet("Errors"), ["Error number", "Symbol", "Message"], errors)
    with (folder / "entities.csv").open("w", newline="") as stream:
        rows = csv.writer(stream)
        rows.writerow(["Entity", "Code point", "Unicode name"])
        rows.writerows(
            (name, f"U+{code:04X}", unicodedata.name(chr(code), ""))
            for code, name in sorted(codepoint2name.items())
        )
    with (folder / "currencies.csv").open("w", newline="") as stream:
        rows = csv.writer(stream, delimiter=";")
        rows.writerow(["Sign", "Code point", "Currency sign's name"])
        rows.writerows(
            (chr(code), f"U+{code:04X}", unicodedata.name(chr(code)))
            for code in range(sys.maxunicode)
            if unicodedata.category(chr(code)) == "Sc"
        )


def _fill(sheet: Any, head: list[str], rows: Iterable[Sequence[object]]) -> None:
    sheet.write_row(0, 0, head)
    for number, row in enumerate(rows, 1):
        sheet.write_row(number, 0, row)


def _functions(name: str) -> Iterator[tuple[str, str, Any]]:
    """Yields the name, the docstring and the value of each function that a module documents."""
    module = import_module(name)
    holder = module.Path if name == "pathlib" else module
    offered = getattr(module, "__all__", None) if holder is module else None
    for each in offered or sorted(vars(holder)):
        value = getattr(holder, each)
        doc = inspect.getdoc(value) or ""
        if not each.startswith("_") and callable(value) and len(doc) > 20:
            yield each, doc, value


def _write_slides(path: Path, name: str) -> None:
    """Writes a slide for each function: what it does, and the rest as the speaker's notes."""
    from pptx import Presentation

    deck = Presentation()
    title = deck.slides.add_slide(deck.slide_layouts[0])
    title.shapes.title.text = f"A tour of {name}"
    for function, doc, _ in _functions(name):
        paragraphs = doc.split("\n\n")
        slide = deck.slides.add_slide(deck.slide_layouts[1])
        slide.shapes.title.text = function
        slide.placeholders[1].text = "\n".join(" ".join(each.split()) for each in paragraphs[:2])
        if paragraphs[2:]:
            slide.notes_slide.notes_text_frame.text = "\n\n".join(paragraphs[2:])
    deck.save(str(path))


def _notebook(name: str) -> dict[str, Any]:
    """Returns a notebook: for each function a remark, its code, and its name as output."""
    cells: list[dict[str, Any]] = [_cell("markdown", f"# Notes on {name}")]
    for number, (function, doc, value) in enumerate(_functions(name), 1):
        cells.append(_cell("markdown", f"## {function}\n\n{doc}"))
        try:
            code = inspect.getsource(value)
        except TypeError:
            code = f"import {name}\nhelp({name}.{function})"
        printed = [{"output_type": "stream", "name": "stdout", "text": f"{function} is defined\n"}]
        cells.append(
            {**_cell("code", code), "outputs": printed, "execution_count": number},
        )
    return {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


def _cell(kind: str, source: str) -> dict[str, Any]:
    return {"cell_type": kind, "metadata": {}, "source": source.splitlines(keepends=True)}


def _mail(topic: str, number: int) -> EmailMessage:
    """Returns an answer to a colleague's question, which it quotes as mail programs do."""
    asker, author = _PEOPLE[number % 6], _PEOPLE[(number + 1) % 6]
    subject = topics[topic].splitlines()[0].replace('"', "")
    message = EmailMessage()
    message["From"] = f"{author} <{author.lower()}@example.org>"
    message["To"] = f"{asker} <{asker.lower()}@example.org>"
    message["Date"] = f"Mon, {number % 28 + 1:02} Jun 2026 09:30:00 +0000"
    message["Subject"] = f"Re: {subject}"
    earlier = topics[_TOPICS[number - 1]].split("\n\n")[1:4]
    quoted = "\n".join(f"> {line}" for line in "\n\n".join(earlier).splitlines())
    body = topics[topic].split("\n\n", 1)[1]
    message.set_content(
        f"Hello {asker},\n\n{body}\n\nBest,\n{author}\n\n-- \n{author}, language group\n\n"
        f"On Sunday {asker} wrote:\n{quoted}\n"
    )
    return message


if __name__ == "__main__":
    sys.exit(main())
