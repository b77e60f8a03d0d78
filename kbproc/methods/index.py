"""Health: doctor, and rebuilding the views."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from kbproc.base.errors import KbprocError
from kbproc.base.params import ReadParams, WriteParams
from kbproc.calls.call import Call
from kbproc.calls.method import Example, method
from kbproc.calls.reply import Reply
from kbproc.documents.documents import targets_of
from kbproc.store.decision import Decision
from kbproc.store.pipeline import LongWrite
from kbproc.store.plan import plan_of


class Doctor(ReadParams, kw_only=True, frozen=True):
    deep: Annotated[
        bool, Meta(description="also rebuild every view beside the live one and compare; slow")
    ] = False
    repair: Annotated[
        bool,
        Meta(description="salvage what can be salvaged; keeps the damaged original aside"),
    ] = False


class Finding(Struct, kw_only=True, frozen=True):
    name: str
    status: Literal["pass", "warn", "fail"]
    message: str
    hint: str | None = None


class Diagnosis(Struct, kw_only=True, frozen=True):
    """`healthy`: nothing failed; warnings do not count."""

    healthy: bool
    findings: list[Finding]


class Rebuild(WriteParams, kw_only=True, frozen=True):
    pass


class Rebuilt(Struct, kw_only=True, frozen=True):
    seq: int
    documents: int
    chunks: int


@method(
    "doctor",
    streams=True,
    params=Doctor,
    result=Diagnosis,
    summary="Check libraries, store, log, views, model, disk and permissions.",
    when_to_use="When something does not work, before asking for help.",
    scope="store:read",
    needs_store=False,
    whole=True,
    errors=["resource.conflict"],
    examples=[
        Example(params={}, what="all checks"),
        Example(params={"repair": True}, exit=7, what="salvage; refused while a process serves"),
    ],
)
def doctor(call: Call, params: Doctor) -> Reply:
    from kbproc.health.doctor import examine

    folder: Path | None = call.settings.get("folder")
    if params.repair:
        _may_repair(call, folder)
    findings: list[Finding] = []
    for found in examine(
        call.host, lambda: call.store, deep=params.deep, folder=folder, repair=params.repair
    ):
        finding = Finding(**found)
        findings.append(finding)
        item: dict[str, Any] = msgspec.to_builtins(finding)
        call.emit("item", {"item": item})
    healthy = all(finding.status != "fail" for finding in findings)
    return Reply(data=Diagnosis(healthy=healthy, findings=findings), count=len(findings))


def _may_repair(call: Call, folder: Path | None) -> None:
    """Raises auth.insufficient_scope, resource.conflict."""
    if "admin" not in call.scopes:
        raise KbprocError(
            "auth.insufficient_scope",
            "doctor with repair needs the scope admin.",
            field="$.params.repair",
            detail={"needed": "admin", "scopes": sorted(call.scopes)},
        )
    if folder is None or call.peer.surface == "serve":
        raise KbprocError(
            "resource.conflict",
            "A store can't be repaired while a process serves it.",
            field="$.params.repair",
            hint="Stop every kbproc that has the store open, then run kbproc doctor --repair.",
        )


@method(
    "index.rebuild",
    kind="write",
    streams=True,
    scope="admin",
    idempotent=True,
    params=Rebuild,
    result=Rebuilt,
    summary="Rebuild every view from the log and swap it in.",
    when_to_use="When doctor says that a view disagrees with the log. Reads go on meanwhile; "
    "nothing is embedded again.",
    examples=[Example(params={}, what="all views")],
)
def rebuild(call: Call, params: Rebuild, write: LongWrite) -> Reply:
    store = call.store
    if params.dry_run:
        planned = Decision(
            events=[],
            data=None,
            targets=targets_of([]),
            changes=["rebuild the catalog, the full-text index and the vector index"],
        )
        return Reply(data=None, plan=plan_of(write.request, planned))
    stages = ("catalog", "fulltext", "vectors")

    def tell(stage: str) -> None:
        number = stages.index(stage)
        call.emit(
            "progress",
            {
                "stage": "rebuild",
                "current": number,
                "total": len(stages),
                "percent": round(100 * number / len(stages), 1),
                "message": stage,
                "last": True,
            },
        )

    store.rebuild(tell)
    with store.reading() as snapshot:
        data = Rebuilt(
            seq=snapshot.seq,
            documents=sum(snapshot.queries.by_type().values()),
            chunks=snapshot.queries.chunk_total(),
        )
    outcome = write.end(data)
    return Reply(data=outcome.data, seq=max(outcome.seq, data.seq))
