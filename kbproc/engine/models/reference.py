"""Embeds texts by sentence-transformers itself, the reference for exported models."""

from __future__ import annotations

import threading
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kbproc.base.errors import KbprocError
from kbproc.engine.models.calibration import UNRELATED, UNSCALED, Prompts, scale_of
from kbproc.engine.models.fluency import FLUENT, SAMPLE_CHARS, Fluency
from kbproc.engine.models.interface import fingerprint
from kbproc.engine.models.onnx import tokenized
from kbproc.engine.models.weights import weights_sha256

# Errors that the readers of a model's files raise for unexpected content.
_OF_ODD_FILES = (
    *(ArithmeticError, AssertionError, AttributeError, EOFError, ImportError, LookupError),
    *(OSError, RuntimeError, TypeError, ValueError, UnpicklingError),
)


class SentenceTransformersEmbedder:
    """The reference embedder: slow to load (some 6 s) and to run, one text after another."""

    scale = UNSCALED
    filler = None

    def __init__(self, name: str, folder: Path) -> None:
        """Raises model.unavailable for a folder whose files are no such model."""
        import transformers

        transformers.logging.disable_progress_bar()
        self._model = _loaded(name, folder)
        self._one_at_a_time = threading.Lock()
        self.name = name
        self.max_tokens = int(self._model.max_seq_length or 512)
        self._prompts = Prompts.of(getattr(self._model, "prompts", None))
        self.dim = len(self.embed("dimensions"))
        self.scale = scale_of(self.embed_many(list(UNRELATED)))
        prompt = self._prompts.document
        modules = (*map(repr, self._model), *((prompt,) if prompt else ()))
        self.fingerprint = fingerprint(weights_sha256(folder), *modules, self.max_tokens)
        own = folder / "tokenizer.json"
        self.tokenizer_path = str(own) if own.is_file() else None

    def embed(self, text: str) -> NDArray[np.float32]:
        return self._embedded(self._prompts.document + text)

    def embed_query(self, text: str) -> NDArray[np.float32]:
        return self._embedded(self._prompts.query + text)

    def _embedded(self, text: str) -> NDArray[np.float32]:
        text = text.encode("utf-8", "replace").decode()
        with self._one_at_a_time:
            vector: NDArray[np.float32] = self._model.encode(
                text, normalize_embeddings=True, show_progress_bar=False, prompt=""
            )
        return vector

    def embed_many(self, texts: list[str]) -> list[NDArray[np.float32]]:
        return [self.embed(text) for text in texts]

    def count_tokens(self, text: str) -> int:
        text = text.encode("utf-8", "replace").decode()
        with self._one_at_a_time:
            return len(self._model.tokenizer(text, truncation=False, verbose=False)["input_ids"])

    def fluency(self, text: str, *, is_foreign: bool = False) -> Fluency:
        fast = getattr(self._model.tokenizer, "backend_tokenizer", None)
        with self._one_at_a_time:
            if fast is None:
                return FLUENT
            return tokenized(fast, text[:SAMPLE_CHARS], is_foreign=is_foreign)

    def close(self) -> None:
        self._model = None


def _loaded(name: str, folder: Path) -> Any:
    """Returns the model of a folder; runs no code from the folder. Raises model.unavailable."""
    from safetensors import SafetensorError
    from sentence_transformers import SentenceTransformer

    try:
        return SentenceTransformer(
            str(folder), device="cpu", local_files_only=True, trust_remote_code=False
        )
    except (*_OF_ODD_FILES, SafetensorError) as error:
        why = str(error).partition("\n")[0].rstrip(".")
        raise KbprocError(
            "model.unavailable", f"The model {name} can't be loaded: {why}.", lasting=True
        ) from error
