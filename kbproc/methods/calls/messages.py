"""The members of errors and events on the wire."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from kbproc.engine.events.session import Reference, Status, WarningKind
from kbproc.engine.store.plan import Plan
from kbproc.engine.store.state import Freshness


class ErrorRisk(Struct, kw_only=True, frozen=True):
    level: str
    action: str


class ErrorRetry(Struct, kw_only=True, frozen=True, omit_defaults=True):
    method: str
    params: dict[str, Any]
    argv: list[str] | UnsetType = UNSET


class ErrorData(Struct, kw_only=True, frozen=True, omit_defaults=True):
    """The data of an error, by which programs decide.

    `ask_again`: the request may still be done; the same one, a write with `detail.client_token`,
    then has the same outcome.
    """

    schema: str
    type: str
    message: str
    exit_code: int
    retryable: bool | None
    hint: str
    doc_url: str
    detail: dict[str, Any]
    retry: ErrorRetry | UnsetType = UNSET
    retry_after_ms: int | UnsetType = UNSET
    field: str | UnsetType = UNSET
    valid_values: list[Any] | UnsetType = UNSET
    risk: ErrorRisk | UnsetType = UNSET
    plan: Plan | UnsetType = UNSET
    seq: int | UnsetType = UNSET
    ask_again: bool | UnsetType = UNSET


class Server(Struct, kw_only=True, frozen=True):
    name: str
    version: str


class Capabilities(Struct, kw_only=True, frozen=True):
    """Features of this version; in `init`, `max_line_bytes` and `max_in_flight` are as chosen."""

    batch: bool
    cancel: bool
    streams: bool
    dry_run: bool
    confirm: bool
    client_token: bool
    modes: list[str]
    fusion: list[str]
    max_line_bytes: int
    max_in_flight: int


class ProcessInit(Struct, kw_only=True, frozen=True, tag="init"):
    """The first line of a process."""

    protocol: str
    server: Server
    store: str
    actor: str
    scopes: list[str]
    capabilities: Capabilities


class Ready(Struct, kw_only=True, frozen=True, omit_defaults=True, tag="ready"):
    """The store is open; what was sent before is answered now.

    `agent` and `scopes`: to a process bound to an agent, and what both allow it.
    """

    seq: int
    freshness: Freshness
    agent: str | UnsetType = UNSET
    scopes: list[str] | UnsetType = UNSET


class Failed(Struct, kw_only=True, frozen=True, tag="error"):
    """The store could not be opened; methods that need none still answer."""

    error: ErrorData


class StreamInit(Struct, kw_only=True, frozen=True, tag="init"):
    """The first event of a stream. An answer's tells whose it is; `kb` null: all that may be
    seen.
    """

    request_id: int | str
    index: int
    session_id: int | UnsetType = UNSET
    message_id: int | UnsetType = UNSET
    kb: list[str] | UnsetType | None = UNSET
    agent: str | UnsetType | None = UNSET
    profile: str | UnsetType | None = UNSET


class Progress(Struct, kw_only=True, frozen=True, tag="progress", omit_defaults=True):
    request_id: int | str
    index: int
    stage: str
    current: int
    total: int | None
    percent: Annotated[float, Meta(ge=0, le=100)] | None
    eta_ms: int | None
    message: str


class Item(Struct, kw_only=True, frozen=True, tag="item"):
    """One finding of a stream, as it is found: see the schema METHOD.item."""

    request_id: int | str
    index: int
    item: dict[str, Any]


class Warned(Struct, kw_only=True, frozen=True, tag="warning"):
    """A warning in a stream.

    In an answer it has a cursor and a kind: a piece was `replaced`, as it was erased; the answer is
    `degraded`; or it was `restarted`, and earlier events are void.
    """

    request_id: int | str
    index: int
    message: str
    cursor: str | UnsetType = UNSET
    message_id: int | UnsetType = UNSET
    kind: WarningKind | UnsetType = UNSET


class Referred(Struct, kw_only=True, frozen=True, tag="references"):
    """The passages that the answer may cite; session.resume continues after `cursor`."""

    request_id: int | str
    index: int
    cursor: str
    message_id: int
    references: list[Reference]


class Said(Struct, kw_only=True, frozen=True, tag="answer"):
    """A change of the answer: a missing member is unchanged, a present one is replaced, and `delta`
    is appended to the text. `status` ends the answer.
    """

    request_id: int | str
    index: int
    cursor: str
    message_id: int
    delta: str | UnsetType = UNSET
    text: str | UnsetType = UNSET
    references: list[Reference] | UnsetType = UNSET
    status: Status | UnsetType = UNSET


PROCESS_EVENTS: dict[str, type] = {"init": ProcessInit, "ready": Ready, "error": Failed}
STREAM_EVENTS: dict[str, type] = {
    "init": StreamInit,
    "progress": Progress,
    "item": Item,
    "warning": Warned,
    "references": Referred,
    "answer": Said,
}
