"""An evaluation runs in a store of its own, and refuses flags that it can't understand."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from kbproc.base.errors import KbprocError
from kbproc.base.settings.config import Config
from kbproc.methods.all import registry
from kbproc.surfaces.shell.arguments import Options, ParsedArguments
from kbproc.surfaces.shell.evaluation.command import evaluate
from kbproc.surfaces.shell.printing.formats import Output


@pytest.fixture
def collection(tmp_path: Path) -> Path:
    folder = tmp_path / "birds"
    folder.mkdir()
    (folder / "heron.md").write_text("# Heron\n\nA heron fishes in the lake.\n")
    (folder / "questions.jsonl").write_text(
        '{"question": "where does a heron fish", "answers": ["heron.md"]}\n'
        '{"question": "who bakes bread"}\n'
    )
    return folder


def figures(folder: Path, *words: str, **flags: str) -> dict[str, Any]:
    parsed = ParsedArguments(
        {f"--{name}": [value] for name, value in flags.items()}, [str(folder), *words]
    )
    config = Config(store=folder / "store", cache=folder / "cache")
    options = Options(config=config, output=Output(io.StringIO(), io.StringIO()))
    return evaluate(parsed, options, registry())


@pytest.mark.parametrize(
    ("flags", "field", "message"),
    [
        ({"questions": "0"}, "--questions", "--questions is '0'; it is a number of at least 1."),
        ({"questions": "x"}, "--questions", "--questions is 'x'; it is a number of at least 1."),
        ({"compare": "rrf"}, "--compare", "--compare is 'rrf'; it is made of NAME=VALUE."),
        ({"compare": "=rrf"}, "--compare", "--compare is '=rrf'; it is made of NAME=VALUE."),
        ({"compare": "a=1,"}, "--compare", "--compare is 'a=1,'; it is made of NAME=VALUE."),
    ],
)
def test_a_flag_that_can_not_be_understood_is_refused(
    collection: Path, flags: dict[str, str], field: str, message: str
) -> None:
    with pytest.raises(KbprocError) as error:
        figures(collection, **flags)
    assert (error.value.type, error.value.field) == ("input.invalid_params", field)
    assert error.value.message == message


def test_one_folder_with_a_collection_is_evaluated(collection: Path, tmp_path: Path) -> None:
    with pytest.raises(KbprocError) as error:
        figures(collection, "other")
    assert error.value.message == "eval needs a DIR."
    with pytest.raises(KbprocError) as error:
        figures(tmp_path)
    assert error.value.field == "DIR"


def test_without_a_model_words_alone_are_measured(collection: Path) -> None:
    with (collection / "questions.jsonl").open("a") as file:
        file.write('{"question": "beyond the first two"}\n')
    result = figures(collection, model="none", compare="mode=fts,distinct=true", questions="2")
    assert (result["collection"], result["documents"], result["questions"]) == ("birds", 1, 2)
    assert list(result["modes"]) == ["fts"]
    assert result["modes"]["fts"]["r_at_1"]["mean"] == 1.0
    assert (result["compared"]["setting"], result["compared"]["same"]) == (
        "mode=fts,distinct=true",
        1,
    )
    assert result["best_scores"]["mode"] == "fts"
    assert sum(result["best_scores"]["others"]) == 1
    assert not (collection / "store").exists()
