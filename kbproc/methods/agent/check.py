"""agent.check: look into an agent's notes folder, scopes, knowledge bases and quotas."""

from __future__ import annotations

from msgspec import Struct

from kbproc.base.errors import Finding
from kbproc.base.params import ReadParams
from kbproc.knowledge.agents import agent
from kbproc.knowledge.agents import check as agentcheck
from kbproc.knowledge.agents.quotas import usage
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.reply import Reply


class CheckAgent(ReadParams, kw_only=True, frozen=True):
    slug: agent.AgentSlug


class AgentCheck(Struct, kw_only=True, frozen=True):
    """`healthy`: nothing failed; warnings do not count."""

    slug: str
    healthy: bool
    findings: list[Finding]


@method(
    "agent.check",
    params=CheckAgent,
    result=AgentCheck,
    summary="Check an agent's notes folder, scopes, knowledge bases and quotas.",
    when_to_use="When an agent misses notes or knowledge, or before relying on it: files that are "
    "skipped or not synchronised yet are named.",
    errors=["resource.not_found"],
    positional=["slug"],
    examples=[
        Example(params={"slug": "gitea"}, what="whether all is well with it"),
        Example(params={"slug": "nobody"}, what="one that does not exist", exit=5),
    ],
)
def check(call: Call, params: CheckAgent) -> Reply:
    with call.store.reading() as snapshot:
        row = agent.require(snapshot.queries, params.slug, only=call.agent)
        results = agentcheck.examine(
            call.store,
            snapshot.queries,
            row,
            scopes=call.registry.scopes,
            used=usage(snapshot.queries, row, call.scopes),
            notes="note:read" in call.scopes,
            alone=call.agent is not None,
        )
        findings = list(results)
        healthy = all(finding.status != "fail" for finding in findings)
        data = AgentCheck(slug=row.slug, healthy=healthy, findings=findings)
        return Reply(data=data, seq=snapshot.seq)
