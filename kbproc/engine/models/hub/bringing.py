"""Installs a model by its name on the hub: from the cache on this machine, else by a download.

Nothing is asked of the hub but by the command that names a model, and nothing in the background.
The commit and each file's sha256 are kept in the settings (see `pins`).
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec

from kbproc.base.errors import KbprocError
from kbproc.base.host import environment, installs, is_offline
from kbproc.base.sandbox import Child
from kbproc.base.values import NOT_READABLE
from kbproc.engine.models.hub import cache, pins
from kbproc.engine.models.hub.choice import choose
from kbproc.engine.models.hub.client import (
    HubModel,
    Line,
    Request,
    TellBytes,
    decode_line,
    offline,
)
from kbproc.engine.models.hub.curated import prefixes_of
from kbproc.engine.models.hub.names import HubName, begins_commit
from kbproc.engine.models.hub.pins import Pin

# Called with the stage, the amount so far, the total or None, and the unit.
Tell = Callable[[str, int, int | None, str], None]

# The habits of huggingface_hub stay off: reports, looks for new versions, progress bars. Plain
# HTTP, because proxies and certificates hold for it, and no second library opens connections.
VARIABLES = {
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "DO_NOT_TRACK": "1",
    "HF_HUB_DISABLE_UPDATE_CHECK": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_XET": "1",
    "HF_DEBUG": "0",
}
# The user's own variables that hold for a request to the hub.
_PASSED = (
    *("HOME", "XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"),
    *("HF_ENDPOINT", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH"),
    *("HF_HUB_DISABLE_IMPLICIT_TOKEN", "HF_HUB_ETAG_TIMEOUT", "HF_HUB_DOWNLOAD_TIMEOUT"),
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
    *("http_proxy", "https_proxy", "all_proxy", "no_proxy"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
)
_LOOK_SECONDS = 0.2
_MEGABYTE = 1_000_000


def plan(name: HubName, cancelled: Callable[[], bool]) -> list[str]:
    """Returns the steps of an installation for people; writes nothing.

    Asks the hub if the model is not on this machine. Raises as `install`.
    """
    if _installed(name) is not None:
        return []
    model, place = _cached(name), "the hub's cache on this machine"
    if model is None:
        model = _ask(name, downloads=False, tell=_silent, cancelled=cancelled)
        place = model.endpoint
    size = sum(model.files.values())
    verb = "use" if model.sha256 else "download"
    steps = [
        f"{verb} {model.repository} at revision {model.commit} from {place}: "
        f"{size / _MEGABYTE:.1f} MB, licence {model.licence or 'not stated'}"
    ]
    steps += [f"{verb} {file} ({amount:,} bytes)" for file, amount in model.files.items()]
    before = pins.pin_of(name.repository)
    if before is not None and before.commit != model.commit:
        steps.append(f"replace revision {before.commit}: stores that use it embed everything anew")
    return steps


def install(name: HubName, tell: Tell, cancelled: Callable[[], bool]) -> bool:
    """Installs a model; returns whether anything changed.

    Raises model.unavailable, network.failed, operation.cancelled, store.io.
    """
    if _installed(name) is not None:
        return False
    model = _cached(name)
    if model is None:
        model = _ask(name, downloads=True, tell=tell, cancelled=cancelled)
    pin = Pin(
        commit=model.commit,
        kind=model.kind,
        revision=name.revision,
        licence=model.licence,
        bytes=sum(model.files.values()),
        files=model.sha256,
        prefixes=prefixes_of(model.repository),
    )
    pins.keep(name.repository, pin)
    return True


def _installed(name: HubName) -> Pin | None:
    """Returns the pin of a model whose files are all there, and are the pinned ones."""
    pin = pins.pin_of(name.repository)
    if pin is None or not pin.is_of(name.revision):
        return None
    folder = cache.snapshot_folder(name.repository, pin.commit)
    return None if cache.differing(folder, pin.files) else pin


def _cached(name: HubName) -> HubModel | None:
    """Returns the model as the hub's cache has it; None where the hub has to be asked.

    A branch or a tag may have moved, so that the hub is asked for it unless it must not be.
    """
    pin = pins.pin_of(name.repository)
    if pin is not None and pin.is_of(name.revision):
        name = HubName(name.repository, pin.commit)  # The model stays at its commit.
    elif name.revision and not begins_commit(name.revision) and not is_offline():
        return None
    commit = cache.commit_in_cache(name)
    if commit is None:
        return None
    folder = cache.snapshot_folder(name.repository, commit)
    try:
        config = msgspec.json.decode((folder / "config.json").read_bytes())
        sizes = cache.files_in(folder)
        choice = choose(name.repository, sizes, config, extras=_extras())
    except (OSError, KbprocError, *NOT_READABLE):  # another program needed other files of it
        return None
    sha256 = {file: cache.sha256_of(folder / file) for file in choice.files}
    expected = pin.files if pin is not None and pin.commit == commit else sha256
    wrong = [
        file
        for file in choice.files
        if expected.get(file, sha256[file]) != sha256[file] or not cache.is_as_named(folder / file)
    ]
    if wrong or set(expected) - set(sha256):
        cache.remove(folder, wrong)
        return None
    return HubModel(
        repository=name.repository,
        commit=commit,
        kind=choice.kind,
        licence=_licence_in(folder),
        endpoint="",
        files=choice.files,
        sha256=sha256,
    )


def _licence_in(folder: Path) -> str | None:
    """Returns the licence of a card, if the cache has it."""
    try:
        lines = (folder / "README.md").read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return None
    values = (line.partition(":")[2].strip() for line in lines if line.startswith("license:"))
    return next(values, None) or None


def _ask(name: HubName, *, downloads: bool, tell: Tell, cancelled: Callable[[], bool]) -> HubModel:
    """Asks the hub. Raises as `install`."""
    if is_offline():
        raise offline(name)
    _require_library()
    pin = pins.pin_of(name.repository)
    is_pinned = pin is not None and pin.is_of(name.revision)
    request = Request(
        repository=name.repository,
        revision=pin.commit if pin is not None and is_pinned else name.revision,
        cache=str(cache.hub_cache()),
        downloads=downloads,
        extras=_extras(),
        pinned=pin.files if pin is not None and is_pinned else {},
    )
    return ask_in_child(
        request,
        lambda done, size: tell("download", -(-done // _MEGABYTE), -(-size // _MEGABYTE), "MB"),
        cancelled,
    )


def ask_in_child(request: Request, tell: TellBytes, cancelled: Callable[[], bool]) -> HubModel:
    """Asks the hub in a process of its own. Raises as `install`."""
    variables = environment()
    passed = {variable: variables[variable] for variable in _PASSED if variable in variables}
    offline = {"HF_HUB_OFFLINE": "0", "TRANSFORMERS_OFFLINE": "0"}
    with (
        tempfile.TemporaryFile() as log,
        Child(
            "kbproc.engine.models.hub.client",
            msgspec.json.encode(request).decode(),
            environment={**passed, **offline, **VARIABLES},
            stderr=log,
        ) as child,
    ):
        line = _last_line(child, tell, cancelled)
        if line is not None and line.model is not None:
            return line.model
        if line is not None and line.failure is not None:
            raise line.failure.error()
        log.seek(0)
        printed = log.read().decode(errors="replace")[-2000:]
    raise KbprocError(
        "model.unavailable",
        f"The process that asks the hub for {request.repository} has ended without an answer.",
        detail={"log": printed},
    )


def _last_line(child: Child, tell: TellBytes, cancelled: Callable[[], bool]) -> Line | None:
    """Returns the child's last line; tells the progress of the others."""

    def patience() -> float:
        if cancelled():
            raise KbprocError("operation.cancelled", "The download was stopped.")
        return _LOOK_SECONDS

    line = None
    while True:
        try:
            line = decode_line(child.receive_line(patience))
        except EOFError:
            return line
        if line.done is not None and line.total is not None:
            tell(line.done, line.total)


def _silent(stage: str, done: int, total: int | None, unit: str) -> None:
    """Reports no progress, because a preview has none."""


def _extras() -> list[str]:
    """Returns the installed extras by which models other than a plain BERT are exported."""
    from kbproc.engine.models.weights import GRAPHS, TORCH, lacking

    modules = {"graphs": GRAPHS, "export": TORCH}
    return [name for name, needed in modules.items() if not lacking(needed)]


def _require_library() -> None:
    from importlib.util import find_spec

    if find_spec("huggingface_hub") is None:
        raise KbprocError(
            "model.unavailable",
            "What asks the hub is not installed: huggingface_hub.",
            hint=f"It comes with what runs models: {installs('meaning')}.",
            lasting=True,
        )
