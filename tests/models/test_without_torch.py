"""The parts of a traced export that need no torch ask the model as the export will."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kbproc.base.errors import KbprocError
from kbproc.engine.models.through_torch import embedded, save_tokenizer


def test_texts_are_embedded_one_by_one_as_units_without_a_prompt() -> None:
    calls: list[tuple[str, dict[str, Any]]] = []

    def encode(text: str, **options: Any) -> str:
        calls.append((text, options))
        return f"vector of {text}"

    model = SimpleNamespace(encode=encode)
    assert embedded(model, ["a", "b"]) == ["vector of a", "vector of b"]
    assert [text for text, _ in calls] == ["a", "b"]
    assert calls[0][1] == {"normalize_embeddings": True, "prompt": ""}
    assert embedded(model, []) == []


def test_a_tokenizer_is_written_without_its_limits(tmp_path: Path) -> None:
    steps: list[str] = []
    fast = SimpleNamespace(
        no_truncation=lambda: steps.append("no truncation"),
        no_padding=lambda: steps.append("no padding"),
        save=steps.append,
    )
    save_tokenizer(SimpleNamespace(backend_tokenizer=fast), tmp_path)
    assert steps == ["no truncation", "no padding", str(tmp_path / "tokenizer.json")]


def test_a_slow_tokenizer_is_refused(tmp_path: Path) -> None:
    for tokenizer in (SimpleNamespace(), SimpleNamespace(backend_tokenizer=None)):
        with pytest.raises(KbprocError) as error:
            save_tokenizer(tokenizer, tmp_path)
        assert error.value.type == "model.unavailable"
        assert error.value.message == "The model has no tokenizer.json."
    assert list(tmp_path.iterdir()) == []
