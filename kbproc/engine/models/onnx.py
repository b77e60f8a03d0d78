"""Runs an exported model: one text at a time, on one thread, by onnxruntime.

Owns: the layout of an exported model's folder (model.onnx, tokenizer.json,
meta.json, and what onnxruntime makes of the first: *.ort, which may be removed)
and how a text becomes a vector from it.
Refuses to know: where the folder comes from and how it was made.

One text at a time, because with dynamic int8 a text's vector depends on what
shares its batch; two threads with one text each are also faster than a batch.
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
from kbproc.base.values import decoder
from kbproc.models.calibration import AS_IT_IS, Prompts, Scale
from kbproc.models.fluency import LOOKED_AT, OF_FEW, OF_MANY, Fluency, Limits, fluency
from kbproc.models.interface import fingerprint

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FORMAT = 1
META = "meta.json"
MODEL = "model.onnx"
TOKENIZER = "tokenizer.json"
OUTPUT = "sentence_vector"

# A file of onnxruntime's own is mapped, and its weights stay there.
_MAPPED = (
    "use_memory_mapped_ort_model",
    "use_ort_model_bytes_directly",
    "use_ort_model_bytes_for_initializers",
)

_OLD_SECONDS = 30 * 86_400

_logger = logging.getLogger(__name__)


class Meta(msgspec.Struct, frozen=True, kw_only=True):
    """meta.json. `modules`: the chain inside the graph, pooling included.

    `parity`: least and mean cosine with sentence-transformers at export. `max_tokens`: of a text,
    beside the longer prompt. `knows_scripts`: its tokenizer has words of more than one.
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
    scale: Scale = AS_IT_IS
    knows_scripts: bool = False

    @property
    def fingerprint(self) -> bytes:
        told = (self.weights_sha256, self.precision, self.max_tokens, self.lowercase)
        more = (self.prompts.document,) if self.prompts.document else ()
        return fingerprint(*told, *self.modules, *more)


_decode_meta = decoder(Meta).decode


def read_meta(folder: Path) -> Meta | None:
    """The meta of an exported model; None where the folder holds no usable one."""
    try:
        meta = _decode_meta((folder / META).read_bytes())
    except (OSError, msgspec.DecodeError):
        return None
    whole = (folder / MODEL).is_file() and (folder / TOKENIZER).is_file()
    return meta if whole and meta.format == FORMAT else None


class OnnxEmbedder:
    """Any number of threads may call embed at once; each runs on its own thread."""

    batches = False

    def __init__(self, folder: Path) -> None:
        """Loads the model; raises model.unavailable."""
        meta = read_meta(folder)
        if meta is None:
            raise _broken(folder, "it is incomplete")
        self.name, self.dim, self.max_tokens = meta.name, meta.dim, meta.max_tokens
        self.fingerprint = meta.fingerprint
        self.tokenizer_path: str | None = str(folder / TOKENIZER)
        self.scale = meta.scale
        self._prompts, self._knows_scripts = meta.prompts, meta.knows_scripts
        self._lowercase = meta.lowercase
        self._session = session(folder, OUTPUT)
        self._inputs = [input.name for input in self._session.get_inputs()]
        self._tokenizer = tokenizer(folder)
        self._tokenizer.enable_truncation(self.max_tokens + self._prompt_tokens())
        self._special = self._tokenizer.num_special_tokens_to_add(False)

    def embed(self, text: str) -> NDArray[np.float32]:
        """The text's vector, L2-normalised, shape (dim,); what exceeds max_tokens is cut."""
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
        """Tokens of the whole text, the model's special ones included."""
        encoding = self._encode(text)
        lengths: list[int] = [len(piece.ids) for piece in (encoding, *encoding.overflowing)]
        repeated: int = self._special * (len(lengths) - 1)
        return sum(lengths) - repeated

    def fluency(self, text: str, *, is_foreign: bool = False) -> Fluency:
        text = text[:LOOKED_AT]
        limits = OF_MANY if self._knows_scripts else OF_FEW
        text = text.lower() if self._lowercase else text
        return tokenized(self._tokenizer, text, limits, is_foreign=is_foreign)

    def _prompt_tokens(self) -> int:
        """Of the longer prompt: so much more than max_tokens the model reads."""
        prompts = (self._prompts.query, self._prompts.document)
        return max(len(self._tokenizer.encode(p, add_special_tokens=False).ids) for p in prompts)

    def close(self) -> None:
        self._session = None

    def _encode(self, text: str) -> Any:
        # A lone surrogate has no UTF-8 and the tokenizer refuses it.
        text = text.encode("utf-8", "replace").decode()
        return self._tokenizer.encode(text.lower() if self._lowercase else text)


def tokenized(
    tokenizer: Any, text: str, limits: Limits = OF_FEW, *, is_foreign: bool = False
) -> Fluency:
    """`tokenizer`: of the library tokenizers."""
    text = text.encode("utf-8", "replace").decode()
    encoding = tokenizer.encode(text, add_special_tokens=False)
    unknown = _unknown(tokenizer)
    lacking = [id == unknown for id in encoding.ids]
    return fluency(text, encoding.offsets, lacking, limits, is_foreign=is_foreign)


def _unknown(tokenizer: Any) -> int | None:
    """The token that stands for whatever the tokenizer lacks."""
    names = (getattr(tokenizer.model, "unk_token", None), "[UNK]", "<unk>")
    found = (tokenizer.token_to_id(name) for name in names if name)
    return next((id for id in found if id is not None), None)


def session(folder: Path, output: str) -> Any:
    """The model in a folder, ready to run; `output`: what it gives. Raises model.unavailable."""
    try:
        return _made_ready(folder, output) or _started(folder / MODEL)
    except Exception as error:
        raise _broken(folder, str(error)) from error


def _made_ready(folder: Path, output: str) -> Any | None:
    """From what onnxruntime has made of the model, which takes it a quarter of the time.

    It gives the same vectors to the bit. Each version keeps its own beside the model; None where
    that can't be done.
    """
    import onnxruntime as ort

    model = folder / MODEL
    found = model.stat()
    ready = folder / f"{ort.__version__}-{found.st_size}-{found.st_mtime_ns}.ort"
    if not ready.is_file() and not os.access(folder, os.W_OK):
        return None
    try:
        if not ready.is_file():
            _make_ready(model, ready)
        started = _started(ready)
        if output in [one.name for one in started.get_outputs()]:
            return started
        raise ValueError("it is damaged")
    except Exception:  # onnxruntime's errors have no class in common
        _logger.warning("%s can't be used, and is made again next time", ready, exc_info=True)
        with contextlib.suppress(OSError):
            ready.unlink(missing_ok=True)
        return None


def _make_ready(model: Path, ready: Path) -> None:
    """Raises OSError, and what onnxruntime raises."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix=".ready.", dir=ready.parent) as beside:
        made = Path(beside) / ready.name
        _started(model, kept=made)
        made.chmod(0o600)
        sync_file(made)
        made.replace(ready)
    _sweep(ready)


def _sweep(new: Path) -> None:
    """What killed processes and other versions left long before; one in use is made again."""
    limit = new.stat().st_mtime - _OLD_SECONDS
    for path in (*new.parent.glob(".ready.*"), *new.parent.glob("*.ort")):
        with contextlib.suppress(OSError):
            if path.stat().st_mtime < limit:
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def _started(file: Path, *, kept: Path | None = None) -> Any:
    """`kept`: where what is made of the model is written, good for any processor."""
    import onnxruntime as ort

    ort.set_default_logger_severity(3)
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    for name in _MAPPED:
        options.add_session_config_entry(f"session.{name}", "1")
    if kept is not None:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        options.optimized_model_filepath = str(kept)
        options.add_session_config_entry("session.save_model_format", "ORT")
    # Before its fallback, which is the same provider again, it prints on stdout.
    providers = ["CPUExecutionProvider"]
    return ort.InferenceSession(str(file), options, providers=providers, enable_fallback=0)


def tokenizer(folder: Path) -> Any:
    """The tokenizer in a folder, of the library tokenizers. Raises model.unavailable."""
    from tokenizers import Tokenizer

    try:
        found = Tokenizer.from_file(str(folder / TOKENIZER))
    except Exception as error:
        raise _broken(folder, str(error)) from error
    found.no_padding()
    return found


def _broken(folder: Path, why: str) -> KbprocError:
    return KbprocError(
        "model.unavailable",
        f"The exported model in {folder} can't be loaded: {why.rstrip('.')}.",
        hint=f"Remove {folder}: the model is exported again at the next start.",
    )
