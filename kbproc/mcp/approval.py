"""A plan, put to the person at the client, and the person's answer.

Owns: the question in both eras, which answer is an approval, a refusal or none, and the command
with which a person decides in a shell.
Refuses to know: how the plan is made and carried out. A plan's hash is all that goes out and comes
back: it confirms exactly this plan, for this caller, as long as nothing of it has changed.
"""

from __future__ import annotations

import shlex
from typing import Any, Literal

from msgspec import Struct

from kbproc.mcp.session import Request
from kbproc.mcp.toolbox import Wanted

KEY = "approval"
_MOST_SHOWN = 20
# An empty form preselects nothing: accept is yes, decline is no.
_EMPTY: dict[str, Any] = {"type": "object", "properties": {}}
_ASKS = "Accept to do exactly this; decline to leave everything as it is."
# Codex accepts an empty form without a person where its user has switched approvals off, and of a
# boolean it highlights true, so that Enter destroys. It is asked for a choice that starts at no.
_ACCEPT_BY_THEMSELVES = frozenset({"codex-mcp-client"})
_FIELD = "carry_out"
_YES = "yes"
_CHOICE: dict[str, Any] = {
    "type": "object",
    "properties": {
        _FIELD: {"type": "string", "title": "Carry out this plan?", "enum": ["no", _YES]}
    },
    "required": [_FIELD],
}
_ASKS_TO_CHOOSE = (
    "Choose yes to do exactly this; choose no, or decline, to leave everything as it is."
)
_NOT_FOR_SHELL = frozenset({"client_token", "confirm", "dry_run", "timeout_ms"})

Verdict = Literal["approved", "refused", "unanswered"]


class Shell(Struct, frozen=True, kw_only=True):
    """Where a person can decide. `agent`: whose things are meant where a request names none."""

    store: str
    agent: str | None = None

    def command(self, request: Wanted) -> str:
        """Returns the whole command line for a request, quoted."""
        from kbproc.calls.typed import argv_of
        from kbproc.methods.all import registry

        method = registry().methods[request.method]
        params = {k: v for k, v in request.params.items() if k not in _NOT_FOR_SHELL}
        if self.agent is not None and "agent" in method.params.__struct_fields__:
            params.setdefault("agent", self.agent)
        return shlex.join([*argv_of(method, params), "--store", self.store])


def can_elicit(request: Request) -> bool:
    """Whether the client can put a form to a person; a bare {} has always meant forms."""
    declared = request.capabilities.get("elicitation")
    return isinstance(declared, dict) and (not declared or "form" in declared)


def _needs_choice(request: Request) -> bool:
    return request.client in _ACCEPT_BY_THEMSELVES


def question(plan: dict[str, Any], request: Request) -> dict[str, Any]:
    """The params of elicitation/create, for the client of the request."""
    schema, asks = (_CHOICE, _ASKS_TO_CHOOSE) if _needs_choice(request) else (_EMPTY, _ASKS)
    risk = plan["risk"]
    lines = [f"{plan['action']} (risk: {risk['level']}) would:"]
    lines += [f"- {change}" for change in plan["changes"][:_MOST_SHOWN]]
    if (more := len(plan["changes"]) - _MOST_SHOWN) > 0:
        lines.append(f"- and {more} more")
    return {"message": "\n".join([*lines, asks]), "requestedSchema": schema}


def required(plan: dict[str, Any], request: Request) -> dict[str, Any]:
    """The result that asks for input, since 2026-07-28."""
    asked = {"method": "elicitation/create", "params": {"mode": "form", **question(plan, request)}}
    return {
        "resultType": "input_required",
        "inputRequests": {KEY: asked},
        "requestState": plan["plan_hash"],
    }


def given(request: Request) -> tuple[str, Verdict] | None:
    """The hash of a plan and the verdict on it, where a request brings that."""
    state = request.params.get("requestState")
    responses = request.params.get("inputResponses")
    if not request.is_modern or not isinstance(state, str) or not isinstance(responses, dict):
        return None
    answer = responses.get(KEY)
    return None if not isinstance(answer, dict) else (state, verdict(answer, request))


def verdict(answer: dict[str, Any], request: Request) -> Verdict:
    """Returns what a person says to the form of `question`. Clients that run without a person send
    cancel, an error, or a form that nobody has filled in.
    """
    match answer:
        case {"action": "decline"}:
            return "refused"
        case {"action": "accept"} if not _needs_choice(request):
            return "approved"
        case {"action": "accept", "content": dict(content)} if _FIELD in content:
            return "approved" if content[_FIELD] == _YES else "refused"
    return "unanswered"
