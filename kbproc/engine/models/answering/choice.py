"""Chooses a store's answerer by the settings of llm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from kbproc.base.errors import KbprocError
from kbproc.base.values import decoder
from kbproc.engine.models.answering.extractive import Extractive
from kbproc.engine.models.answering.interface import Answerer, AnswerOutcome, Conversation, Prompt
from kbproc.engine.models.answering.openai import LlmSpec, OpenAi
from kbproc.engine.models.endpoint import key_in

_decode = decoder(LlmSpec).decode


class UnusableAnswerer:
    """A stand-in for an endpoint that can't be used: every call raises the reason."""

    name = "openai"

    def __init__(self, model: str | None, why: KbprocError) -> None:
        self.model = model
        self._why = why

    def prompt_tokens(self, prompt: Prompt) -> int:
        raise self._why

    def answer(self, prompt: Prompt, talk: Conversation) -> AnswerOutcome:
        raise self._why

    def prepare(self) -> None:
        """Does nothing, because there is nothing to prepare."""

    def close(self) -> None:
        """Does nothing, because nothing is open."""


def answerer_of(settings: Mapping[str, Any]) -> Answerer:
    """Returns the answerer of these settings; without a url, the extractive one.

    `settings`: LlmSpec's members, or api_key_file in the place of the key.
    """
    if not settings.get("url"):
        return Extractive()
    model = settings.get("model")
    try:
        members = {name: value for name, value in settings.items() if name != "api_key_file"}
        if file := str(settings.get("api_key_file") or ""):
            members["api_key"] = key_in(file, _wrong)
        return OpenAi(_decode(msgspec.json.encode(members)))
    except msgspec.ValidationError:
        why = _wrong("The settings of llm are not valid: they need a url and a model.")
    except KbprocError as error:
        why = error
    return UnusableAnswerer(str(model) if model else None, why)


def _wrong(message: str) -> KbprocError:
    hint = "Correct the settings of llm, or leave llm.url out for extractive answers."
    return KbprocError("llm.unavailable", message, hint=hint, lasting=True)
