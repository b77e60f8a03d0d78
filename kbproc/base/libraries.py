"""Finds the versions of libraries, and required ones that are not installed.

Some are missing after an interrupted pip install, for example. The package's metadata lists them;
the advice is the command that installs them.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterator

LIBRARIES = (
    "msgspec",
    "duckdb",
    "tantivy",
    "faiss-cpu",
    "numpy",
    "simsimd",
    "jsonschema-rs",
    "pypdf",
    "markdown-it-py",
    "selectolax",
    "lxml",
    "charset-normalizer",
)
OPTIONAL = ("onnxruntime", "tokenizers", "onnx", "sentence-transformers", "torch")


@functools.cache
def require(module: str) -> None:
    """Raises ModuleNotFoundError if the module is not installed; does not import it."""
    from importlib.util import find_spec

    if module not in sys.modules and find_spec(module) is None:
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)


def library_versions() -> dict[str, str]:
    """Returns name → version of the libraries that do the work, as far as they are installed."""
    folders: dict[str, str] = {}
    for name, path in _metadata_folders():
        folders.setdefault(name, path)  # the first one of the path is imported
    versions = {}
    for name in (*LIBRARIES, *OPTIONAL):
        folder = folders.get(name.replace("-", "_"))
        if folder is not None and (version := _version_in(folder)) is not None:
            versions[name] = version
    return versions


def _metadata_folders() -> Iterator[tuple[str, str]]:
    """Yields normal name and folder of each installed package's metadata.

    One look at each folder of the path finds all packages; importlib.metadata takes twenty times
    as long to import and to look for one after the other.
    """
    for root in sys.path:
        try:
            entries = os.listdir(root or ".")  # noqa: PTH208  pathlib has nothing as fast
        except OSError:  # a zip file, or no folder
            continue
        for entry in entries:
            stem, _, kind = entry.rpartition(".")
            if kind in {"dist-info", "egg-info"}:
                name = stem.partition("-")[0].replace("-", "_").replace(".", "_").lower()
                yield name, f"{root or '.'}/{entry}"


def _version_in(folder: str) -> str | None:
    for name in ("METADATA", "PKG-INFO"):
        try:
            with open(f"{folder}/{name}", encoding="utf-8") as file:  # noqa: PTH123
                for line in file:
                    if line.startswith("Version:"):
                        return line.partition(":")[2].strip()
        except OSError:
            continue
    return None


def is_lack(error: BaseException) -> bool:
    """Returns whether the error means that a library other than kbproc is not installed."""
    return isinstance(error, ModuleNotFoundError) and not (error.name or "kbproc").startswith(
        "kbproc"
    )


def missing_requirements() -> list[str]:
    """Returns kbproc's requirements without extras, as pip writes them, that are not installed."""
    from importlib import metadata  # imported here, because a start does not need it

    try:
        lines = metadata.requires("kbproc") or []
    except metadata.PackageNotFoundError:  # kbproc runs from a checkout
        return []
    return [line for line in lines if "extra ==" not in line and not _is_installed(line)]


def _is_installed(requirement: str) -> bool:
    import re
    from importlib import metadata

    name = re.match(r"[\w.-]+", requirement)
    try:
        metadata.distribution(name[0] if name else requirement)
    except metadata.PackageNotFoundError:
        return False
    return True


def installer() -> list[str] | None:
    """Returns the command that installs into this environment; None without pip and uv."""
    import importlib.util
    import shutil

    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip", "install"]
    uv = shutil.which("uv")
    return [uv, "pip", "install", "--python", sys.executable] if uv else None


def advice(error: ModuleNotFoundError) -> tuple[str, str]:
    """Returns a sentence that names the missing libraries, and how to get them."""
    import shlex

    module = (error.name or "").partition(".")[0]
    if module in sys.stdlib_module_names:
        sentence = f"This Python was built without its own module {module}."
        return sentence, f"Use another Python than {sys.executable}."
    requirements = missing_requirements() or [module]
    names = ", ".join(requirements)
    command = installer() or ["pip", "install"]
    return f"kbproc is not installed whole: {names} missing.", shlex.join([*command, *requirements])
