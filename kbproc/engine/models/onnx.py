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
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from kbproc.base.durable import sync_file
from kbproc.base.errors import KbprocError
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

_logger = logging.getLogger(__name__)


class EmbedderMeta(msgspec.Struct, frozen=True, kw_only=True):
    """The meta.json of an exported model. `modules`: the chain inside the graph, with pooling.

    `parity`: least and mean cosine with sentence-transformers at export. `max_tokens`: of a text,
    beside the longer prompt. `knows_scripts`: the tokenizer has words of more than one script.
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

    def __init__(self, folder: Path, *, is_kept: bool = True) -> None:
        """Loads the model; raises model.unavailable. `is_kept`: the folder is used again."""
        meta = read_meta(folder)
        if meta is None:
            raise _broken(folder, "it is incomplete")
        self.name, self.dim, self.max_tokens = meta.name, meta.dim, meta.max_tokens
        self.fingerprint = meta.fingerprint
        self.tokenizer_path: str | None = str(folder / TOKENIZER)
        self.scale = meta.scale
        self._prompts, self._knows_scripts = meta.prompts, meta.knows_scripts
        self._lowercase = meta.lowercase
        self._session = session(folder, OUTPUT, is_kept=is_kept)
        self._inputs = [input.name for input in self._session.get_inputs()]
        self._tokenizer = tokenizer(folder)
        self._tokenizer.enable_truncation(self.max_tokens + self._prompt_tokens())
        self._special = self._tokenizer.num_special_tokens_to_add(False)

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
        repeated: int = self._special * (len(lengths) - 1)
        return sum(lengths) - repeated

    def fluency(self, text: str, *, is_foreign: bool = False) -> Fluency:
        text = text[:SAMPLE_CHARS]
        limits = MANY_SCRIPTS if self._knows_scripts else FEW_SCRIPTS
        text = text.lower() if self._lowercase else text
        return tokenized(self._tokenizer, text, limits, is_foreign=is_foreign)

    def _prompt_tokens(self) -> int:
        """Returns the tokens of the longer prompt, which the model reads beside max_tokens."""
        prompts = (self._prompts.query, self._prompts.document)
        return max(len(self._tokenizer.encode(p, add_special_tokens=False).ids) for p in prompts)

    def close(self) -> None:
        self._session = None

    def _encode(self, text: str) -> Any:
        # Because a lone surrogate has no UTF-8, and the tokenizer refuses it.
        text = text.encode("utf-8", "replace").decode()
        return self._tokenizer.encode(text.lower() if self._lowercase else text)


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


def session(folder: Path, output: str, *, is_kept: bool = True) -> Any:
    """Returns the session that runs the model in a folder. Raises model.unavailable.

    `output`: the name of the graph's output. `is_kept`: the folder is used again, so that
    onnxruntime's own file may stay in it.
    """
    try:
        return (is_kept and _made_ready(folder, output)) or _started(folder / MODEL)
    except Exception as error:
        raise _broken(folder, str(error)) from error


def _made_ready(folder: Path, output: str) -> Any | None:
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
        started = _started(ready)
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


def _started(file: Path, *, ready: Path | None = None) -> Any:
    """Returns a session of a file; `ready`: where onnxruntime's own file is written.

    That file serves any processor.
    """
    import onnxruntime as ort

    ort.set_default_logger_severity(3)
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    for name in _MAPPED:
        options.add_session_config_entry(f"session.{name}", "1")
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
    return KbprocError(
        "model.unavailable",
        f"The exported model in {folder} can't be loaded: {why.rstrip('.')}.",
        hint=f"Remove {folder}: the model is exported again at the next start.",
    )
