"""Cells of a notebook are cited by heading and number, with the text of their outputs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kbproc.base.errors import KbprocError
from kbproc.engine.sources.parse.blocks import Block, Parsed
from kbproc.engine.sources.parse.notebook import parse


def read(*cells: dict[str, Any], **more: Any) -> Parsed:
    return parse(json.dumps({"cells": cells, **more}).encode(), "a.ipynb")


def markdown(source: Any, **more: Any) -> dict[str, Any]:
    return {"cell_type": "markdown", "source": source, **more}


def code(source: Any, *outputs: dict[str, Any]) -> dict[str, Any]:
    return {"cell_type": "code", "source": source, "outputs": list(outputs)}


def test_cells_stand_below_the_last_heading_with_their_numbers() -> None:
    parsed = read(
        code("import os"),
        markdown(["## Cranes\n", "\n", "Intro."]),
        code(["a = 1\n", "b = 2"]),
        {"cell_type": "raw", "source": "raw words"},
        code(" \n"),
        metadata={"language_info": {"name": "julia"}},
    )
    assert parsed.blocks == [
        Block(text="import os", section="cell 1", kind="code"),
        Block(text="## Cranes", section="Cranes > cell 2"),
        Block(text="Intro.", section="Cranes > cell 2"),
        Block(text="a = 1\nb = 2", section="Cranes > cell 3", kind="code"),
        Block(text="raw words", section="Cranes > cell 4"),
    ]
    assert parsed.metadata == {"language": "julia"}


def test_each_first_level_heading_below_the_title_begins_a_section() -> None:
    parsed = read(
        markdown("# Bridges\n\nWhat for."),
        markdown("# Data"),
        code("load()"),
        markdown("# Model\n\n## Fit"),
        code("fit()"),
    )
    assert parsed.title == "Bridges"
    assert [(block.text, block.section) for block in parsed.blocks] == [
        ("# Bridges", "cell 1"),
        ("What for.", "cell 1"),
        ("# Data", "Data > cell 2"),
        ("load()", "Data > cell 3"),
        ("# Model", "Model > cell 4"),
        ("## Fit", "Model > Fit > cell 4"),
        ("fit()", "Model > Fit > cell 5"),
    ]


def test_outputs_are_text_and_their_pictures_and_objects_are_counted() -> None:
    parsed = read(
        code(
            "show()",
            {"output_type": "stream", "text": ["4 t\n", "2 t"]},
            {"output_type": "error", "ename": "ValueError", "evalue": "no rope"},
            {"output_type": "execute_result", "data": {"text/plain": "<Figure>", "image/png": "i"}},
            {"output_type": "display_data", "data": {"application/x": "{}"}},
            {"output_type": "display_data", "data": "odd"},
            {"output_type": "stream", "text": " "},
        )
    )
    assert [block.text for block in parsed.blocks] == [
        "show()",
        "Output:\n4 t\n2 t",
        "Output:\nValueError: no rope",
        "Output:\n<Figure>",
    ]
    assert {block.kind for block in parsed.blocks} == {"code"}
    assert parsed.unread == {"pictures": 1, "objects": 1}


def test_a_long_output_is_cut_and_counted() -> None:
    outputs = [
        {"output_type": "execute_result", "data": {"text/plain": text}}
        for text in ("x" * 2000, "x" * 1000 + "gone" + "y" * 1000)
    ]
    parsed = read(code("run()", *outputs))
    assert [block.text for block in parsed.blocks[1:]] == [
        "Output:\n" + "x" * 2000,
        "Output:\n" + "x" * 1000 + "\n…\n" + "y" * 1000,
    ]
    assert parsed.unread["long_outputs"] == 1


def test_an_output_is_read_as_its_screen_shows_it() -> None:
    """A progress bar overwrites itself, also over several outputs, and colours are no text."""
    bar = [{"output_type": "stream", "name": "stderr", "text": f"\r{n:3} %"} for n in range(101)]
    error = {
        "output_type": "error",
        "ename": "ZeroDivisionError",
        "evalue": "division by \x1b[1mzero\x1b[0m",
        "traceback": [
            "\x1b[0;31m" + "-" * 75 + "\x1b[0m",
            "\x1b[0;31mZeroDivisionError\x1b[0m      Traceback (most recent call last)",
            "Cell \x1b[0;32mIn[3], line 5\x1b[0m\n\x1b[1;32m      4\x1b[0m ok()\n"
            "\x1b[0;32m----> 5\x1b[0m \x1b[43mhoist\x1b[49m(0)\n\x1b[1;32m      6\x1b[0m rest()",
            "File \x1b[0;32m~/rope.py:12\x1b[0m, in \x1b[0;36mhoist\x1b[0;34m(load)\x1b[0m\n"
            "\x1b[0;32m---> 12\x1b[0m     \x1b[38;5;28;01mreturn\x1b[39;00m 4 / load",
            "\x1b[0;31mZeroDivisionError\x1b[0m: division by zero",
        ],
    }
    done = {"output_type": "stream", "name": "stdout", "text": ["\n", "\x1b[32mdone\x1b[0m\n"]}
    parsed = read(code("run()", *bar, done, error))
    assert [block.text for block in parsed.blocks[1:]] == [
        "Output:\n100 %\ndone\n",
        "Output:\nZeroDivisionError: division by zero\n"
        "Cell In[3], line 5\n    hoist(0)\n"
        "File ~/rope.py:12, in hoist(load)\n    return 4 / load",
    ]
    assert parsed.unread == {}


def test_an_output_without_plain_text_is_read_as_it_is_shown() -> None:
    nameless = "<IPython.core.display.HTML object>"
    table = "<table><tr><th>load</th><th>rope</th></tr><tr><td>4 t</td><td>steel</td></tr></table>"
    bundles = [
        {"text/html": ["<b>Total</b> ", "lift"]},
        {"text/html": table, "text/plain": nameless},
        {"text/markdown": "**Rope** is *new*", "text/plain": "<a.b.Styler at 0x7f01>"},
        {"text/latex": r"$\frac{crane}{hook}$"},
        {"text/html": "<b>not this</b>", "text/plain": "as plain"},
        {"text/html": "<p style='display:none'>hidden</p>seen"},
    ]
    outputs = [{"output_type": "display_data", "data": data} for data in bundles]
    parsed = read(code("show()", *outputs))
    texts = [block.text.removeprefix("Output:\n") for block in parsed.blocks[1:]]
    assert texts[0] == "Total lift"
    assert "4 t" in texts[1] and "steel" in texts[1] and "<td>" not in texts[1]
    assert texts[2:] == ["**Rope** is *new*", r"$\frac{crane}{hook}$", "as plain", "seen"]
    assert parsed.unread == {"hidden_passages": 1}


def test_attachments_of_a_cell_are_counted_and_the_first_heading_is_the_title() -> None:
    parsed = read(
        markdown("![plan](attachment:a.png)", attachments={"a.png": {}, "b.png": {}}),
        markdown("# Cranes", attachments=["odd"]),
        markdown("# Hooks"),
    )
    assert parsed.unread["attachments"] == 2
    assert parsed.title == "Cranes"


def test_a_notebook_of_the_older_format_has_its_cells_in_sheets() -> None:
    cells = [
        {"cell_type": "heading", "level": 9, "source": "Cranes"},
        {
            "cell_type": "code",
            "input": "lift()",
            "outputs": [
                {"output_type": "pyout", "text": "4 t", "png": "i"},
                {"output_type": "pyerr", "ename": "E", "evalue": "x"},
            ],
        },
    ]
    parsed = parse(json.dumps({"worksheets": [{"cells": cells}]}).encode(), "a.ipynb")
    assert [(block.text, block.section) for block in parsed.blocks] == [
        ("###### Cranes", "Cranes > cell 1"),
        ("lift()", "Cranes > cell 2"),
        ("Output:\n4 t", "Cranes > cell 2"),
        ("Output:\nE: x", "Cranes > cell 2"),
    ]
    assert parsed.unread["pictures"] == 1


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "a.ipynb is damaged: it is not JSON ("),
        (b'{"cells": [', "a.ipynb is damaged: it is not JSON ("),
        (b'{"cells": "\xff"}', "a.ipynb is damaged: it is not JSON ("),
        (b"[]", "a.ipynb is no notebook: it has no list of cells."),
        (b"{}", "a.ipynb is no notebook: it has no list of cells."),
        (b'{"cells": 5}', "a.ipynb is no notebook: it has no list of cells."),
        (b'{"cells": [5]}', "a.ipynb is no notebook: it has no list of cells."),
        (b'{"worksheets": [{}]}', "a.ipynb is no notebook: it has no list of cells."),
    ],
)
def test_other_json_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(KbprocError) as caught:
        parse(data, "a.ipynb")
    assert caught.value.type == "operation.failed"
    assert caught.value.message.startswith(message)
    assert caught.value.message.endswith(".")


@pytest.mark.parametrize("metadata", [None, [], {"language_info": 5}, {"language_info": {}}])
def test_metadata_of_another_shape_names_no_language(metadata: Any) -> None:
    assert read(code("x"), metadata=metadata).metadata == {}
