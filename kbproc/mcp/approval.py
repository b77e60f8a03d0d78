"""A plan, put to the person at the client, and the person's answer.

Owns: the question in both eras, and what counts as an approval.
Refuses to know: how the plan is made and carried out. A plan's hash is all that goes out and comes
back: it confirms exactly this plan, for this caller, as long as nothing of it has changed.
"""

from __future__ import annotations

from typing import Any

from kbproc.mcp.session import Request

KEY = "approval"
_MOST_SHOWN = 20
_SCHEMA = {
    "type": "object",
    "properties": {
        "approve": {
            "type": "boolean",
            "title": "Carry this out",
            "description": "Only what is told above is done.",
        }
    },
    "required": ["approve"],
}


def can_elicit(request: Request) -> bool:
    """Whether the client can put a form to a person; a bare {} has always meant forms."""
    declared = request.capabilities.get("elicitation")
    return isinstance(declared, dict) and (not declared or "form" in declared)


def question(plan: dict[str, Any]) -> dict[str, Any]:
    """The params of elicitation/create."""
    risk = plan["risk"]
    lines = [f"{plan['action']} (risk: {risk['level']}) would:"]
    lines += [f"- {change}" for change in plan["changes"][:_MOST_SHOWN]]
    if (more := len(plan["changes"]) - _MOST_SHOWN) > 0:
        lines.append(f"- and {more} more")
    return {"message": "\n".join(lines), "requestedSchema": _SCHEMA}


def required(plan: dict[str, Any]) -> dict[str, Any]:
    """The result that asks for input, since 2026-07-28."""
    asked = {"method": "elicitation/create", "params": {"mode": "form", **question(plan)}}
    return {
        "resultType": "input_required",
        "inputRequests": {KEY: asked},
        "requestState": plan["plan_hash"],
    }


def given(request: Request) -> tuple[str, bool] | None:
    """The hash of a plan and whether it was approved, where a request brings that."""
    state = request.params.get("requestState")
    responses = request.params.get("inputResponses")
    if not request.is_modern or not isinstance(state, str) or not isinstance(responses, dict):
        return None
    answer = responses.get(KEY)
    return None if not isinstance(answer, dict) else (state, is_approved(answer))


def is_approved(answer: dict[str, Any]) -> bool:
    content = answer.get("content")
    return (
        answer.get("action") == "accept"
        and isinstance(content, dict)
        and content.get("approve") is True
    )
