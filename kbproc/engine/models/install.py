"""Installs a model, exported, and the packages that run it, by this environment's pip or uv.

The installer knows the user's index, proxies and certificates: kbproc itself opens no connection.
It exports the weights after it has compared their sha256 with the one that this version names,
keeps the export, and removes the downloaded package. A model that is named OWNER/NAME is one of
the hub: see `hub`.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from kbproc.base.errors import KbprocError
from kbproc.base.host import environment, installs
from kbproc.base.libraries import installer
from kbproc.engine.models.export import export, is_whole
from kbproc.engine.models.exporting import sweep
from kbproc.engine.models.hub import bringing, pins
from kbproc.engine.models.hub.names import hub_name
from kbproc.engine.models.hub.pins import Pin
from kbproc.engine.models.weights import (
    CARRIERS,
    RUNTIME,
    Carrier,
    LocalModel,
    carried,
    installed,
    installed_folder,
    lacking,
    locate,
    weights_sha256,
)

# Called with the stage (`runtime`, `download`, `export`), the amount so far, the total or None, and
# the unit.
Tell = Callable[[str, int, int | None, str], None]

_EXTRA = "meaning"
_UNIT = "MB"
_LOOK_SECONDS = 0.2
_LONGEST_SECONDS = 3600.0
_ERROR = re.compile(r"error: *", re.I)
_NOISE = ("warning:", "[notice]", "deprecation:", "hint:", "note:")
# Words of pip and uv where the index or the way to it is at fault; another try may help.
_NETWORK = re.compile(
    r"connection|timed? ?out|resolve|network|ssl|certificate|retries|proxy|fetch|unreachable"
    r"|no matching distribution|could not find a version|no solution found",
    re.I,
)


def install(name: str, *, tell: Tell, cancelled: Callable[[], bool]) -> bool:
    """Installs the model `name` and what runs it; returns whether anything was missing.

    Raises model.unavailable, network.failed, operation.cancelled, store.io.
    """
    named = hub_name(name)
    carrier = None if named else _carrier(name)
    lacked_runtime = bool(lacking(RUNTIME))
    if lacked_runtime:
        _install_runtime(tell, cancelled)
    if carrier is None:
        return (named is not None and bringing.install(named, tell, cancelled)) or lacked_runtime
    if is_sound(name):
        return lacked_runtime
    if source := _weights(name, carrier):
        _export(source, tell, cancelled)
        return True
    target = installed_folder(name)
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        sweep(target)
        with tempfile.TemporaryDirectory(
            prefix=f".{target.name}.", dir=target.parent, ignore_cleanup_errors=True
        ) as beside:
            _bring(carrier, Path(beside), tell, cancelled)
            _export(carried(name, _compared(carrier, Path(beside))), tell, cancelled)
    except OSError as error:
        raise KbprocError(
            "store.io", f"The model can't be written into {target.parent}: {error.strerror}."
        ) from error
    return True


def _export(source: LocalModel, tell: Tell, cancelled: Callable[[], bool]) -> None:
    tell("export", 0, None, "")
    export(source, installed(), cancelled=cancelled)
    tell("export", 1, 1, "")


def _install_runtime(tell: Tell, cancelled: Callable[[], bool]) -> None:
    tell("runtime", 0, None, _UNIT)
    with tempfile.TemporaryDirectory() as beside:
        _run(
            _requirements(),
            beside=Path(beside),
            tell=lambda megabytes: tell("runtime", megabytes, None, _UNIT),
            cancelled=cancelled,
        )
    importlib.invalidate_caches()
    if missing := lacking(RUNTIME):
        raise KbprocError(
            "model.unavailable",
            f"The installer succeeded, but these modules are missing: {', '.join(missing)}.",
            hint=f"Run it yourself: {installs(_EXTRA)}.",
        )


def pin_of(name: str) -> Pin | None:
    """Returns the pin of an installed model of the hub; None for any other model."""
    named = hub_name(name)
    return pins.pin_of(named.repository) if named else None


def effects(name: str, cancelled: Callable[[], bool] = lambda: False) -> list[str]:
    """Returns the steps of `install` for a plan. Asks the hub for a model that is not here.

    Raises input.invalid_params, and of a model of the hub what `install` raises.
    """
    named = hub_name(name)
    carrier = None if named else _carrier(name)
    steps = []
    if missing := lacking(RUNTIME):
        steps.append(f"install what runs models: {', '.join(missing)}")
    if named is not None:
        steps += bringing.plan(named, cancelled)
    elif carrier is not None and not is_sound(name):
        size, folder = f"{carrier.megabytes} MB", installed_folder(name)
        if _weights(name, carrier):
            steps.append(f"export the model into {folder}")
        else:
            package = f"{carrier.package} {carrier.version}"
            steps.append(f"download {size} ({package}) and keep the model, exported, in {folder}")
    return steps


def is_sound(name: str) -> bool:
    """Returns whether a carrier's model is installed, to the bit as it was exported."""
    return is_whole(installed_folder(name))


def _weights(name: str, carrier: Carrier) -> LocalModel | None:
    """Returns the model with its weights; None if they are not here, or are other ones.

    A cache may hold another revision, and a copy may be damaged: `install` brings the right one.
    """
    source = locate(name)
    if source.folder is None or weights_sha256(source.folder / carrier.weights) != carrier.sha256:
        return None
    return source


def is_known(name: str) -> bool:
    """Returns whether a package is known that carries this model."""
    return name in CARRIERS


def _carrier(name: str) -> Carrier:
    try:
        return CARRIERS[name]
    except KeyError:
        raise KbprocError(
            "input.invalid_params",
            f"kbproc knows no package that carries the model {name!r}.",
            field="name",
            valid_values=sorted(CARRIERS),
            hint="A model of the Hugging Face hub has a name of two parts: kbproc model install "
            "OWNER/NAME. A model of your own needs no installation: kbproc model use FOLDER.",
        ) from None


def _bring(carrier: Carrier, beside: Path, tell: Tell, cancelled: Callable[[], bool]) -> None:
    total = carrier.megabytes
    tell("download", 0, total, _UNIT)
    options = ["--target", str(beside / "package"), "--no-deps", "--only-binary", ":all:"]
    _run(
        [*options, f"{carrier.package}=={carrier.version}"],
        beside=beside,
        tell=lambda megabytes: tell("download", min(megabytes, total), total, _UNIT),
        cancelled=cancelled,
    )
    tell("download", total, total, _UNIT)


def _compared(carrier: Carrier, beside: Path) -> Path:
    """Returns the model's folder in the package that was downloaded. Raises model.unavailable."""
    folder = beside / "package" / carrier.module / carrier.folder
    for file, sha256 in carrier.files.items():
        if not (folder / file).is_file() or weights_sha256(folder / file) != sha256:
            raise KbprocError(
                "model.unavailable",
                f"The package {carrier.package} {carrier.version} holds an unexpected {file}. "
                "Nothing of it was kept.",
                hint="Look at which index the package came from: pip config list.",
                lasting=True,
            )
    return folder


def _requirements() -> list[str]:
    """Returns the requirements of the extra that runs models, as pip reads them."""
    marker = f'extra == "{_EXTRA}"'
    lines = importlib.metadata.requires("kbproc") or []
    split = (line.partition(";") for line in lines)
    return [line.strip() for line, _, condition in split if marker in condition.replace("'", '"')]


def _installer() -> list[str]:
    """Returns the command that installs into this environment. Raises model.unavailable."""
    if command := installer():
        quiet = ["--no-input", "--disable-pip-version-check"]
        return [*command, *(quiet if "-m" in command else [])]
    raise KbprocError(
        "model.unavailable",
        f"Neither pip nor uv can install into the environment of {sys.executable}.",
        hint=f"Install what runs models yourself: {installs(_EXTRA)}. "
        "The package that carries the weights can be installed there without its dependencies.",
        lasting=True,
    )


def _run(
    options: Sequence[str],
    *,
    beside: Path,
    tell: Callable[[int], None],
    cancelled: Callable[[], bool],
) -> None:
    """Runs the installer. Raises network.failed, operation.cancelled, model.unavailable.

    `beside`: its folder for downloads, whose size is the progress.
    """
    command = [*_installer(), "--quiet", *options]
    deadline = time.monotonic() + _LONGEST_SECONDS
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**environment(), "TMPDIR": str(beside)},
            cwd="/",
            start_new_session=True,
        )
        try:
            while process.poll() is None:
                if cancelled():
                    raise KbprocError("operation.cancelled", "The installation was stopped.")
                if time.monotonic() > deadline:
                    raise KbprocError("network.failed", "The installer did not end in an hour.")
                tell(_megabytes_in(beside))
                time.sleep(_LOOK_SECONDS)
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)  # and its children
            process.wait()
        if process.returncode:
            log.seek(0)
            raise _failed(command, log.read().decode(errors="replace"))


def _failed(command: Sequence[str], printed: str) -> KbprocError:
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    lines = [line for line in lines if not line.lower().startswith(_NOISE)]
    errors = [line for line in lines if _ERROR.match(line)] or lines or ["it printed nothing"]
    reason = _ERROR.sub("", errors[-1], count=1).rstrip(".")
    is_network = _NETWORK.search(reason) is not None
    # Weights go into a folder that is gone by now: that command would install nothing of use.
    verbose = [word for word in command if word != "--quiet"]
    see = "" if "--target" in command else f"Run it yourself to see more: {shlex.join(verbose)}. "
    return KbprocError(
        "network.failed" if is_network else "model.unavailable",
        f"The installer failed: {reason}.",
        hint=f"{see}kbproc docs install tells other ways, also without a network.",
        detail={"log": printed[-2000:]},
        lasting=not is_network,
    )


def _megabytes_in(folder: Path) -> int:
    total = 0
    for path, _, files in os.walk(folder):
        for file in files:
            try:
                total += os.stat(os.path.join(path, file)).st_size  # noqa: PTH116, PTH118
            except OSError:  # because the installer has just moved the file
                continue
    return total // 1_000_000
