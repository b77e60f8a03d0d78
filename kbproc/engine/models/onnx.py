"""Runs an exported model: one text at a time, on one thread, by onnxruntime.

The folder of an exported model holds model.onnx, tokenizer.json, meta.json, and *.ort, which
onnxruntime makes of the first and which may be removed.

One text at a time, because with dynamic int8 a text's vector depends on the other texts of its
batch; two threads with one text each are also faster than a batch.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
from collections.abc import Callable, Iterable
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from kbproc.base.durable import sync_file
from kbproc.base.errors import KbprocError
from kbproc.base.spared import import_runtime
from kbproc.base.values import NOT_READABLE, decoder
from kbproc.engine.models.calibration import UNSCALED, Prompts, Scale
from kbproc.engine.models.fluency import (
    FEW_SCRIPTS,
    MANY_SCRIPTS,
    SAMPLE_CHARS,
    Fluency,
    Limits,
    fluency,
)
from kbproc.engine.models.interface import fingerprint
from kbproc.engine.models.weights import repair_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FORMAT = 1
META = "meta.json"
MODEL = "model.onnx"
TOKENIZER = "tokenizer.json"
OUTPUT = "sentence_vector"
INPUTS = frozenset({"input_ids", "attention_mask", "token_type_ids"})

# So that a file in onnxruntime's own format is mapped, and its weights stay there.
_MAPPED = (
    "use_memory_mapped_ort_model",
    "use_ort_model_bytes_directly",
    "use_ort_model_bytes_for_initializers",
)

_OLD_SECONDS = 30 * 86_400
_FEW_CHARS, _LONGEST_WORD = 1000, 100  # characters of a text that gets a tokenizer of its own

_logger = logging.getLogger(__name__)


class EmbedderMeta(msgspec.Struct, frozen=True, kw_only=True):
    """The meta.json of an exported model. `modules`: the chain inside the graph, with pooling.

    `parity`: least and mean cosine with sentence-transformers at export. `max_tokens`: of a text,
    beside the longer prompt. `knows_scripts`: the tokenizer has words of more than one script.
    `files`: the sha256 of graph and tokenizer.
    """

    format: int = FORMAT
    name: str
    dim: int
    max_tokens: int
    modules: list[str]
    weights_sha256: str
    precision: str
    lowercase: bool = False
    parity: tuple[float, float] = (1.0, 1.0)
    prompts: Prompts = Prompts()
    scale: Scale = UNSCALED
    knows_scripts: bool = False
    files: dict[str, str] = {}

    @property
    def fingerprint(self) -> bytes:
        facts = (self.weights_sha256, self.precision, self.max_tokens, self.lowercase)
        prompt = (self.prompts.document,) if self.prompts.document else ()
        return fingerprint(*facts, *self.modules, *prompt)


_decode_meta = decoder(EmbedderMeta).decode


def read_meta(folder: Path) -> EmbedderMeta | None:
    """Returns the meta of an exported model; None if the folder holds no usable model."""
    try:
        meta = _decode_meta((folder / META).read_bytes())
    except (OSError, *NOT_READABLE):
        return None
    is_whole = (folder / MODEL).is_file() and (folder / TOKENIZER).is_file()
    return meta if is_whole and meta.format == FORMAT else None


class OnnxEmbedder:
    """An exported model at work. Any number of threads may call it; a call runs on its thread."""

    filler = None

    def __init__(self, folder: Path, *, is_kept: bool = True, for_few: bool = False) -> None:
        """Loads the model; raises model.unavailable. `is_kept`: the folder is used again.

        `for_few`: for a process that embeds few texts and ends. It loads in half of the time and
        computes the same vectors, more slowly.
        """
        meta = read_meta(folder)
        if meta is None:
            raise _broken(folder, "it is incomplete")
        self.name, self.dim, self.max_tokens = meta.name, meta.dim, meta.max_tokens
        self.fingerprint = meta.fingerprint
        self.tokenizer_path: str | None = str(folder / TOKENIZER)
        self.scale = meta.scale
        self._prompts, self._knows_scripts = meta.prompts, meta.knows_scripts
        self._lowercase = meta.lowercase
        self._session = session(folder, OUTPUT, is_kept=is_kept, for_few=for_few)
        self._inputs = [input.name for input in self._session.get_inputs()]
        self._tokenizers = Tokenizers(folder, self._most_tokens, for_few=for_few)

    def embed(self, text: str) -> NDArray[np.float32]:
        """Returns the text's vector, L2-normalised, shape (dim,); cuts what exceeds max_tokens."""
        return self._embedded(self._prompts.document + text)

    def embed_query(self, text: str) -> NDArray[np.float32]:
        return self._embedded(self._prompts.query + text)

    def _embedded(self, text: str) -> NDArray[np.float32]:
        import numpy as np

        encoding = self._encode(text)
        columns = {
            "input_ids": encoding.ids,
            "attention_mask": encoding.attention_mask,
            "token_type_ids": encoding.type_ids,
        }
        feed = {name: np.array([columns[name]], np.int64) for name in self._inputs}
        vector: NDArray[np.float32] = self._session.run([OUTPUT], feed)[0][0]
        return vector / np.linalg.norm(vector)

    def embed_many(self, texts: list[str]) -> list[NDArray[np.float32]]:
        return [self.embed(text) for text in texts]

    def count_tokens(self, text: str) -> int:
        """Returns the number of tokens of the whole text, with the model's special ones."""
        encoding = self._encode(text)
        lengths: list[int] = [len(piece.ids) for piece in (encoding, *encoding.overflowing)]
        repeated: int = self._tokenizers.special * (len(lengths) - 1)
        return sum(lengths) - repeated

    def fluency(self, text: str, *, is_foreign: bool = False) -> Fluency:
        text = text[:SAMPLE_CHARS]
        limits = MANY_SCRIPTS if self._knows_scripts else FEW_SCRIPTS
        text = text.lower() if self._lowercase else text
        return tokenized(self._tokenizers.of(text), text, limits, is_foreign=is_foreign)

    def _most_tokens(self, tokenizer: Any) -> int:
        """Returns max_tokens with the tokens of the longer prompt, which the model reads, too."""
        prompts = (self._prompts.query, self._prompts.document)
        counts = [len(tokenizer.encode(p, add_special_tokens=False).ids) for p in prompts]
        return self.max_tokens + max(counts)

    def close(self) -> None:
        self._session = None

    def _encode(self, text: str) -> Any:
        # Because a lone surrogate has no UTF-8, and the tokenizer refuses it.
        text = text.encode("utf-8", "replace").decode()
        text = text.lower() if self._lowercase else text
        return self._tokenizers.of(text).encode(text)


class Tokenizers:
    """The tokenizer of a model; for few texts one for each, which is loaded in a fifth of the time.

    A piece of a word is a part of the text, so that the other pieces that the model knows make no
    difference to it.
    """

    def __init__(
        self, folder: Path, most_tokens: Callable[[Any], int], *, for_few: bool = False
    ) -> None:
        """`most_tokens`: returns how many tokens of a text a tokenizer keeps."""
        self._folder = folder
        self._most_tokens = most_tokens
        self._facts = _word_pieces(folder / TOKENIZER) if for_few else None
        self._last: tuple[str, Any] | None = None  # a text, and its tokenizer
        if self._facts is None:
            self._whole  # noqa: B018  a file that can't be read has to fail now

    @cached_property
    def _whole(self) -> Any:
        return self._cutting(tokenizer(self._folder))

    @property
    def special(self) -> int:
        """Returns the number of special tokens that a text gets."""
        return int(self._whole.num_special_tokens_to_add(False))

    def of(self, text: str) -> Any:
        """Returns a tokenizer that reads this text as the model's does."""
        if self._facts is None or len(text) > _FEW_CHARS:
            return self._whole
        last = self._last
        if last is None or last[0] != text:
            try:
                small = _small_tokenizer(self._facts, text)
            except Exception:  # noqa: BLE001  the whole one says what is wrong with the file
                small = None
            last = self._last = text, self._whole if small is None else self._cutting(small)
        return last[1]

    def _cutting(self, tokenizer: Any) -> Any:
        tokenizer.enable_truncation(self._most_tokens(tokenizer))
        return tokenizer


def _word_pieces(file: Path) -> dict[str, Any] | None:
    """Returns what the file of a tokenizer of word pieces holds; None for any other file."""
    try:
        facts = msgspec.json.decode(file.read_bytes())
        is_known = facts["model"]["type"] == "WordPiece" and facts["model"]["vocab"]
    except (OSError, KeyError, TypeError, *NOT_READABLE):
        return None
    return facts if is_known else None


def _small_tokenizer(facts: dict[str, Any], text: str) -> Any | None:
    """Returns a tokenizer that knows the pieces that may stand in this text.

    Returns None for a long word, because it has too many parts.
    """
    from tokenizers import Tokenizer

    model, tokens = facts["model"], [token["content"] for token in facts["added_tokens"]]
    vocabulary, prefix = model["vocab"], model["continuing_subword_prefix"]
    names = {name for name in (*tokens, model["unk_token"]) if name in vocabulary}

    def made(names: Iterable[str]) -> Any:
        pieces = {name: vocabulary[name] for name in names}
        small = {**facts, "model": {**model, "vocab": pieces}}
        return Tokenizer.from_str(msgspec.json.encode(small).decode())

    normalizer = made(names).normalizer
    normal = text if normalizer is None else normalizer.normalize_str(text)
    words = normal.split(" ")
    if max(map(len, words)) > _LONGEST_WORD:
        return None
    for word in words:
        for start, end in combinations(range(len(word) + 1), 2):
            piece = word[start:end]
            names.update(name for name in (piece, prefix + piece) if name in vocabulary)
    return made(names)


def tokenized(
    tokenizer: Any, text: str, limits: Limits = FEW_SCRIPTS, *, is_foreign: bool = False
) -> Fluency:
    """Returns how well a tokenizer of the library tokenizers knows a text."""
    text = text.encode("utf-8", "replace").decode()
    encoding = tokenizer.encode(text, add_special_tokens=False)
    unknown = _unknown(tokenizer)
    lacking = [id == unknown for id in encoding.ids]
    return fluency(text, encoding.offsets, lacking, limits, is_foreign=is_foreign)


def _unknown(tokenizer: Any) -> int | None:
    """Returns the id of the token for unknown text; None if there is no such token."""
    names = (getattr(tokenizer.model, "unk_token", None), "[UNK]", "<unk>")
    ids = (tokenizer.token_to_id(name) for name in names if name)
    return next((id for id in ids if id is not None), None)


def session(folder: Path, output: str, *, is_kept: bool = True, for_few: bool = False) -> Any:
    """Returns the session that runs the model in a folder. Raises model.unavailable.

    `output`: the name of the graph's output. `is_kept`: the folder is used again, so that
    onnxruntime's own file may stay in it. `for_few`: see OnnxEmbedder.
    """
    try:
        import_runtime()
        ready = _made_ready(folder, output, for_few=for_few) if is_kept else None
        return ready or _started(folder / MODEL)
    except Exception as error:
        raise _broken(folder, str(error)) from error


def _made_ready(folder: Path, output: str, *, for_few: bool) -> Any | None:
    """Returns a session from onnxruntime's own file of the model, which starts four times as fast.

    It gives the same vectors to the bit. Each version of onnxruntime writes a file of its own
    beside the model. None if the file can't be written or used.
    """
    import onnxruntime as ort

    model = folder / MODEL
    stat = model.stat()
    ready = folder / f"{ort.__version__}-{stat.st_size}-{stat.st_mtime_ns}.ort"
    if not ready.is_file() and not os.access(folder, os.W_OK):
        return None
    try:
        if not ready.is_file():
            _make_ready(model, ready)
        started = _started(ready, for_few=for_few)
        if output in [node.name for node in started.get_outputs()]:
            return started
        raise ValueError("it is damaged")
    except Exception:  # because onnxruntime's errors have no common class
        _logger.warning("%s can't be used, and is made again next time", ready, exc_info=True)
        with contextlib.suppress(OSError):
            ready.unlink(missing_ok=True)
        return None


def _make_ready(model: Path, ready: Path) -> None:
    """Writes onnxruntime's own file of the model. Raises OSError, and what onnxruntime raises."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix=".ready.", dir=ready.parent) as beside:
        new = Path(beside) / ready.name
        _started(model, ready=new)
        new.chmod(0o600)
        sync_file(new)
        new.replace(ready)
    _sweep(ready)


def _sweep(new: Path) -> None:
    """Removes old files of killed processes and other versions; one in use is written again."""
    limit = new.stat().st_mtime - _OLD_SECONDS
    for path in (*new.parent.glob(".ready.*"), *new.parent.glob("*.ort")):
        with contextlib.suppress(OSError):
            if path.stat().st_mtime < limit:
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def _started(file: Path, *, ready: Path | None = None, for_few: bool = False) -> Any:
    """Returns a session of a file; `ready`: where onnxruntime's own file is written.

    That file serves any processor. `for_few`: its weights are used as they lie in it, and not
    packed for the processor first.
    """
    import onnxruntime as ort

    ort.set_default_logger_severity(3)
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    for name in _MAPPED:
        options.add_session_config_entry(f"session.{name}", "1")
    if for_few:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.add_session_config_entry("session.disable_prepacking", "1")
    if ready is not None:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        options.optimized_model_filepath = str(ready)
        options.add_session_config_entry("session.save_model_format", "ORT")
    # Without a fallback, which would be the same provider again after a line on stdout.
    providers = ["CPUExecutionProvider"]
    return ort.InferenceSession(str(file), options, providers=providers, enable_fallback=0)


def tokenizer(folder: Path) -> Any:
    """Returns the tokenizer in a folder, of the library tokenizers. Raises model.unavailable."""
    from tokenizers import Tokenizer

    try:
        words = Tokenizer.from_file(str(folder / TOKENIZER))
    except Exception as error:
        raise _broken(folder, str(error)) from error
    words.no_padding()
    return words


def _broken(folder: Path, why: str) -> KbprocError:
    hint = f"Remove {folder}: the model is exported again at the next start."
    if command := repair_of(folder):
        hint = f"Install the model again: {command}."
    return KbprocError(
        "model.unavailable",
        f"The exported model in {folder} can't be loaded: {why.rstrip('.')}.",
        hint=hint,
    )
