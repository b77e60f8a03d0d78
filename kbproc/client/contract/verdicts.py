"""What was found, rule by rule.

Owns: the three verdicts, and how findings of many conversations become one verdict a rule.
Refuses to know: how anything is found, and how it is shown.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

PASS, WRONG, UNKNOWN = "pass", "wrong", "unknown"


@dataclass(frozen=True)
class Finding:
    """`wrong`: the implementation broke the rule. `unknown`: the harness could not tell."""

    rule: str
    verdict: str
    conversation: str
    step: str = ""
    expected: str = ""
    sent: str = ""
    came: str = ""


@dataclass
class Verdict:
    """Of one rule; `findings` are those that are no pass."""

    rule: str
    level: str
    says: str
    section: str
    verdict: str = UNKNOWN
    findings: list[Finding] = field(default_factory=list)

    def as_data(self) -> dict[str, Any]:
        return asdict(self)


def verdicts(requirements: Iterable[dict[str, Any]], findings: list[Finding]) -> list[Verdict]:
    """One for each requirement: wrong, if it was wrong anywhere; unknown, if it was not judged."""
    found = []
    for row in requirements:
        told = [one for one in findings if one.rule == row["id"]]
        kinds = {one.verdict for one in told}
        worst = next((kind for kind in (WRONG, UNKNOWN, PASS) if kind in kinds), UNKNOWN)
        bad = [one for one in told if one.verdict == worst != PASS]
        found.append(Verdict(row["id"], row["level"], row["says"], row["section"], worst, bad))
    return found


def exit_code(found: Iterable[Verdict]) -> int:
    """1: a rule that must be kept was broken. 2: none was, but not all could be told."""
    kinds = {one.verdict for one in found if one.level == "must" or one.verdict == UNKNOWN}
    return 1 if WRONG in kinds else 2 if UNKNOWN in kinds else 0
