"""Runs `kbproc work`: reads its words and flags, loads the model, and starts the worker."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from kbproc.base.errors import KbprocError
from kbproc.base.host import installs

_SERVER = re.compile(r"(nats|tls)://[^\s/@]{1,300}\Z")
_KINDS = ("hash",)  # any other name is a model that onnx runs

Last = Callable[[str], Any]


def work(
    servers: Sequence[str], last: Last, cache: Path, tell: Callable[[str], None]
) -> dict[str, Any]:
    """Works until the process gets a signal to end; returns how much work was done.

    `last`: returns a flag's last value. Raises input.invalid_params, model.unavailable, store.io.
    """
    from kbproc.engine.cluster.jetstream.settings import KIND, read

    if not servers or not all(_SERVER.match(server) for server in servers):
        raise _wrong("Name the cluster's servers: nats://HOST:PORT of each.", "servers")
    if not last("--stream"):
        raise _wrong("--stream is missing: name the store that the nodes share.", "--stream")
    parallel = last("--parallel") or "2"
    if not parallel.isdecimal() or not 1 <= int(parallel) <= 64:
        raise _wrong(f"--parallel is {parallel!r}; it is a number from 1 to 64.", "--parallel")
    connection: dict[str, Any] = {
        "kind": KIND,
        "servers": list(servers),
        "stream": last("--stream"),
    }
    try:
        settings = read({**connection, "credentials": last("--credentials")})
    except KbprocError:
        raise _wrong(
            "--stream is no valid name: it may have letters, digits and hyphens.", "--stream"
        ) from None
    try:
        from kbproc.engine.cluster.work.worker import ClusterWorker
    except ModuleNotFoundError as error:
        raise KbprocError(
            "store.incompatible",
            f"The cluster's servers are NATS, and {error.name} is not installed.",
            hint=f"Install it where kbproc is: {installs('cluster')}.",
        ) from error
    from kbproc.engine.models import catalogue
    from kbproc.engine.models.interface import DEFAULT_MODEL, spec_of

    name = last("--model") or DEFAULT_MODEL
    name = str(Path(name).absolute()) if name.startswith(".") else name
    kind = name if name in _KINDS else "onnx"
    embedder = catalogue.load(spec_of({"kind": kind, "name": name}), cache / "models")
    try:
        done = ClusterWorker(settings, embedder, parallel=int(parallel), tell=tell).run()
    finally:
        embedder.close()
    return done._asdict()


def _wrong(message: str, field: str) -> KbprocError:
    return KbprocError(
        "input.invalid_params",
        message,
        field=field,
        hint="kbproc work nats://10.0.0.1:4222 --stream team",
    )
