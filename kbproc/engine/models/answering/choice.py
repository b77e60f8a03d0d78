"""Which answerer a store has.

Owns: reading the endpoint's settings.
Refuses to know: who has approved them, where the key lies, and what is asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from kbproc.base.errors import KbprocError
from kbproc.base.values import decoder
from kbproc.models.answering.extractive import Extractive
from kbproc.models.answering.interface import Answerer, Prompt, Talk, Told
from kbproc.models.answering.openai import LlmSpec, OpenAi
from kbproc.models.keyfile import key_in

_decode = decoder(LlmSpec).decode


class Unusable:
    """In the place of an endpoint that can't be asked: every answer says why."""

    name = "openai"

    def __init__(self, model: str | None, why: KbprocError) -> None:
        self.model = model
        self._why = why

    def prompt_tokens(self, prompt: Prompt) -> int:
        raise self._why

    def answer(self, prompt: Prompt, talk: Talk) -> Told:
        raise self._why

    def prepare(self) -> None:
        """It needs nothing."""

    def close(self) -> None:
        """Nothing is open."""


def answerer_of(settings: Mapping[str, Any]) -> Answerer:
    """`settings`: LlmSpec's members, or api_key_file in the place of the key.

    Without a url answers are extractive.
    """
    if not settings.get("url"):
        return Extractive()
    model = settings.get("model")
    try:
        known = {name: value for name, value in settings.items() if name != "api_key_file"}
        if file := str(settings.get("api_key_file") or ""):
            known["api_key"] = key_in(file, _wrong)
        return OpenAi(_decode(msgspec.json.encode(known)))
    except msgspec.ValidationError:
        why = _wrong("The settings of llm are not valid: they want url and model.")
    except KbprocError as error:
        why = error
    return Unusable(str(model) if model else None, why)


def _wrong(message: str) -> KbprocError:
    hint = "Correct the settings of llm, or leave llm.url out for extractive answers."
    return KbprocError("llm.unavailable", message, hint=hint, lasting=True)
