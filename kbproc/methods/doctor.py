"""doctor: check libraries, store, log, views, model, disk and permissions."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from kbproc.base.errors import Finding, KbprocError
from kbproc.base.params import ReadParams
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.reply import Reply
from kbproc.methods.calls.run import who_gives


class Doctor(ReadParams, kw_only=True, frozen=True):
    deep: Annotated[
        bool, Meta(description="also rebuild every view beside the live one and compare; slow")
    ] = False
    repair: Annotated[
        bool,
        Meta(description="salvage what can be salvaged; keeps the damaged original aside"),
    ] = False
    secrets: Annotated[
        bool, Meta(description="also look for secrets in every text, and name the purge")
    ] = False


class Diagnosis(Struct, kw_only=True, frozen=True):
    """`healthy`: nothing failed; warnings do not count."""

    healthy: bool
    findings: list[Finding]


@method(
    "doctor",
    streams=True,
    params=Doctor,
    result=Diagnosis,
    item=Finding,
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
    from kbproc.knowledge.app.health.doctor import examine

    if params.repair:
        _may_repair(call)
    findings: list[Finding] = []
    for finding in examine(
        call.host,
        lambda: call.library.store,
        deep=params.deep,
        folder=call.folder,
        repair=params.repair,
        look_for_secrets=params.secrets,
        check=call.check_cancelled,
        node_findings=lambda: call.library.node.findings(),  # noqa: PLW0108  it may not open
    ):
        call.check_cancelled()
        findings.append(finding)
        item: dict[str, Any] = msgspec.to_builtins(finding)
        call.emit("item", {"item": item})
    healthy = all(finding.status != "fail" for finding in findings)
    data = Diagnosis(healthy=healthy, findings=findings)
    return Reply(data=data, count=len(findings), seq=_seq(call, findings))


def _seq(call: Call, findings: list[Finding]) -> int:
    """Returns the store's position, if the store could be opened."""
    opened = any(finding.name == "store" and finding.status == "pass" for finding in findings)
    return call.library.store.published.seq if opened else 0


def _may_repair(call: Call) -> None:
    """Raises auth.insufficient_scope, resource.conflict."""
    if "admin" not in call.scopes:
        raise KbprocError(
            "auth.insufficient_scope",
            "doctor with repair needs the scope admin.",
            field="$.params.repair",
            hint=who_gives(call, "admin"),
            detail={"needed": "admin", "scopes": sorted(call.scopes)},
        )
    if call.folder is None or call.peer.surface == "serve":
        raise KbprocError(
            "resource.conflict",
            "A store can't be repaired while a process serves it.",
            field="$.params.repair",
            hint="Stop every kbproc that has the store open, then run kbproc doctor --repair.",
        )
