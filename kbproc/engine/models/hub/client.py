"""Asks the hub for a model, and downloads its files into the hub's cache, by huggingface_hub.

It runs in a process of its own, `python -m kbproc.engine.models.hub.client`, which only the
command that names a model starts. There, and nowhere else, huggingface_hub is imported: its cache
layout, proxies, certificates, tokens, HF_ENDPOINT and its way to resume hold. What it does on its
own is off (see `bringing.VARIABLES`), and nothing of a repository is run.

What came is compared with the hashes that the hub has named before, and with those of the settings.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from kbproc.base.errors import KbprocError
from kbproc.base.values import NOT_READABLE, decoder
from kbproc.engine.models.endpoint import wait_ms
from kbproc.engine.models.hub.cache import git_hash_of, remove, sha256_of, snapshot_folder
from kbproc.engine.models.hub.choice import Choice, choose
from kbproc.engine.models.hub.names import HubName
from kbproc.engine.models.hub.pins import ModelKind

if TYPE_CHECKING:
    from huggingface_hub import HfApi
    from huggingface_hub.hf_api import ModelInfo, RepoSibling

_LOOK_SECONDS = 30.0
_FORBIDDEN = {401, 403}
# Called with the bytes that came so far, and the bytes in all.
TellBytes = Callable[[int, int], None]


class Request(Struct, frozen=True, kw_only=True):
    """A question to the hub. `endpoint`: None is the one of HF_ENDPOINT.

    `downloads`: False asks only what there is. `pinned`: file → the sha256 that it must have.
    """

    repository: str
    revision: str | None
    cache: str
    endpoint: str | None = None
    downloads: bool = True
    extras: list[str] = []
    pinned: dict[str, str] = {}


class HubModel(Struct, frozen=True, kw_only=True):
    """A model as the hub has it. `files`: file → size. `sha256`: of each downloaded file."""

    repository: str
    commit: str
    kind: ModelKind
    licence: str | None
    endpoint: str
    files: dict[str, int]
    sha256: dict[str, str] = {}


class Failure(Struct, frozen=True, kw_only=True):
    """An error as it crosses the pipe."""

    type: str
    message: str
    hint: str | None = None
    field: str | None = None
    lasting: bool = False
    retry_after_ms: int | None = None

    @classmethod
    def of(cls, error: KbprocError) -> Failure:
        return cls(
            type=error.type,
            message=error.message,
            hint=error.hint,
            field=error.field,
            lasting=not error.retryable,
            retry_after_ms=error.retry_after_ms,
        )

    def error(self) -> KbprocError:
        members = msgspec.structs.asdict(self)
        return KbprocError(members.pop("type"), members.pop("message"), **members)


class Line(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line of the child's output: progress, and at last the model or why nothing was."""

    done: int | None = None
    total: int | None = None
    model: HubModel | None = None
    failure: Failure | None = None


decode_line = decoder(Line).decode
_decode_request = decoder(Request).decode


def ask(request: Request, tell: TellBytes) -> HubModel:
    """Returns what the hub has, and downloads it where the request says so.

    Raises model.unavailable, network.failed, store.io.
    """
    from huggingface_hub import HfApi

    api = HfApi(endpoint=request.endpoint, library_name="kbproc", library_version="1")
    name = HubName(request.repository, request.revision)
    with _explained(name, api.endpoint):
        info = api.model_info(
            name.repository, revision=name.revision, files_metadata=True, timeout=_LOOK_SECONDS
        )
        siblings = {one.rfilename: one for one in info.siblings or []}
        commit = info.sha or ""
        choice = _choice(api, request, commit, siblings)
        model = HubModel(
            repository=name.repository,
            commit=commit,
            kind=choice.kind,
            licence=_licence(info),
            endpoint=api.endpoint,
            files=choice.files,
        )
        if not request.downloads:
            return model
        sha256 = _download(api, request, model, siblings, tell)
    return msgspec.structs.replace(model, sha256=sha256)


def _choice(
    api: HfApi, request: Request, commit: str, siblings: Mapping[str, RepoSibling]
) -> Choice:
    sizes = {file: one.size or 0 for file, one in siblings.items()}
    config = _config(api, request.repository, commit) if "config.json" in sizes else {}
    return choose(request.repository, sizes, config, extras=request.extras)


def _config(api: HfApi, repository: str, commit: str) -> Mapping[str, Any]:
    """Returns a repository's config.json, which nothing keeps."""
    from huggingface_hub import get_session, hf_hub_url
    from huggingface_hub.utils._http import hf_raise_for_status

    url = hf_hub_url(repository, "config.json", revision=commit, endpoint=api.endpoint)
    headers = api._build_hf_headers()
    response = get_session().get(url, headers=headers, timeout=_LOOK_SECONDS)
    hf_raise_for_status(response)
    try:
        config = msgspec.json.decode(response.content)
    except NOT_READABLE:
        return {}
    return config if isinstance(config, dict) else {}


def _licence(info: ModelInfo) -> str | None:
    """Returns the licence of the model's card; the name that a licence of its own has."""
    card = info.card_data
    if card is None:
        return None
    licence, name = getattr(card, "license", None), getattr(card, "license_name", None)
    return str(name or licence) if name or licence else None


def _download(
    api: HfApi,
    request: Request,
    model: HubModel,
    siblings: Mapping[str, RepoSibling],
    tell: TellBytes,
) -> dict[str, str]:
    """Downloads the files that the cache lacks; returns the sha256 of each."""
    from huggingface_hub import hf_hub_download

    folder = snapshot_folder(model.repository, model.commit, Path(request.cache))
    bar = _bar(tell, model.files)
    for file, size in model.files.items():
        was_here = (folder / file).is_file()
        hf_hub_download(
            model.repository,
            file,
            revision=model.commit,
            cache_dir=request.cache,
            endpoint=api.endpoint,
            library_name="kbproc",
            library_version="1",
            tqdm_class=bar,
        )
        if was_here:
            bar.step(size)
    sha256 = {file: sha256_of(folder / file) for file in model.files}
    wrong = [
        file
        for file in model.files
        if not _is_announced(siblings[file], folder / file, sha256[file])
        or request.pinned.get(file, sha256[file]) != sha256[file]
    ]
    if wrong:
        remove(folder, wrong)
        raise KbprocError(
            "model.unavailable",
            f"What came from {model.endpoint} as {wrong[0]} of {model.repository} is not the file "
            "that was announced. Nothing of it was kept.",
            hint="Try again. If it comes again, something between here and the hub changes files.",
        )
    return sha256


def _is_announced(sibling: RepoSibling, path: Path, sha256: str) -> bool:
    """Returns whether a file is the one whose hash the hub has named."""
    if sibling.lfs is not None:
        return sha256 == sibling.lfs.sha256
    return sibling.blob_id is None or git_hash_of(path) == sibling.blob_id


def _bar(tell: TellBytes, files: Mapping[str, int]) -> Any:
    """Returns the class of a progress bar of tqdm's shape, which tells the bytes of all files."""
    total = sum(files.values())

    class Bar:
        done = 0

        def __init__(self, *arguments: Any, initial: int = 0, **options: Any) -> None:
            self.step(initial)

        @classmethod
        def step(cls, amount: float | None) -> None:
            cls.done = min(total, cls.done + int(amount or 0))
            tell(cls.done, total)

        def update(self, amount: float | None = 1) -> None:
            self.step(amount)

        def __enter__(self) -> Bar:
            return self

        def __exit__(self, *reason: object) -> None:
            """Does nothing, because the next file goes on."""

        def close(self) -> None:
            """Does nothing, because the next file goes on."""

    return Bar


@contextlib.contextmanager
def _explained(name: HubName, endpoint: str) -> Iterator[None]:
    """Turns what huggingface_hub raises into typed errors."""
    import httpx2
    from huggingface_hub import errors

    try:
        yield
    except errors.GatedRepoError as error:
        raise _refused(
            f"{name.repository} is gated: its owner asks for an agreement first.",
            f"Agree at {endpoint}/{name.repository}, then set HF_TOKEN, or run hf auth login.",
        ) from error
    except errors.RevisionNotFoundError as error:
        raise _refused(
            f"{name.repository} has no revision {name.revision}.",
            f"Look at its revisions: {endpoint}/{name.repository}/tree/main. "
            "Without @REVISION it is main.",
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise _refused(
            f"{endpoint} has no model {name.repository}, or shows it only to those who may see it.",
            "Check the name. Of a private model: set HF_TOKEN, or run hf auth login. "
            "kbproc model list names models.",
        ) from error
    except errors.OfflineModeIsEnabled as error:
        raise offline(name) from error
    except errors.HfHubHTTPError as error:
        raise _answered(name, endpoint, error) from error
    except (httpx2.HTTPError, errors.LocalEntryNotFoundError) as error:
        raise KbprocError(
            "network.failed", f"{endpoint} can't be reached: {_cause(error)}.", hint=_WAYS
        ) from error
    except errors.HFValidationError as error:
        raise _refused(str(error).rstrip(".") + ".", "A name is OWNER/NAME.") from error
    except OSError as error:
        raise KbprocError(
            "store.io", f"The model can't be written into the hub's cache: {error}."
        ) from error


_WAYS = (
    "HF_ENDPOINT names another hub, HTTPS_PROXY a proxy. On a machine without a network, copy the "
    "model's folder there and name it: kbproc model use FOLDER."
)


def _answered(name: HubName, endpoint: str, error: Any) -> KbprocError:
    status = error.response.status_code
    if status in _FORBIDDEN:
        return _refused(
            f"{endpoint} does not show {name.repository} with this token ({status}).",
            "Look at HF_TOKEN, or run hf auth login.",
        )
    return KbprocError(
        "network.failed",
        f"{endpoint} answers {status} to a request for {name.repository}.",
        hint="It allows fewer requests without a token: set HF_TOKEN, or wait."
        if status == 429
        else _WAYS,
        retry_after_ms=wait_ms(error.response.headers),
    )


def _cause(error: BaseException) -> str:
    """Returns the innermost reason, because the outer ones only say that there is one."""
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    return str(error).split("\n", 1)[0].rstrip(".") or type(error).__name__


def offline(name: HubName) -> KbprocError:
    return KbprocError(
        "network.failed",
        f"{name.repository} is not in the hub's cache, and HF_HUB_OFFLINE forbids to ask the hub.",
        hint="Unset HF_HUB_OFFLINE for this command.",
        lasting=True,
    )


def _refused(message: str, hint: str) -> KbprocError:
    return KbprocError("model.unavailable", message, field="$.params.name", hint=hint, lasting=True)


# ------------------------------------------------------------------ the process


def main() -> None:
    """Answers the request in argv[1]: lines of progress, then a last one."""
    from kbproc.base.durable import write_all
    from kbproc.base.host import allow_the_hub
    from kbproc.base.pipes import claim_from_parent

    allow_the_hub()
    writer = claim_from_parent()

    def say(line: Line) -> None:
        write_all(writer, msgspec.json.encode(line) + b"\n")

    try:
        request = _decode_request(sys.argv[1])
        model = ask(request, lambda done, total: say(Line(done=done, total=total)))
    except KbprocError as error:
        say(Line(failure=Failure.of(error)))
    else:
        say(Line(model=model))


if __name__ == "__main__":
    main()
