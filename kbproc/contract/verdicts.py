"""Combines findings into one verdict for each rule, and formats verdicts as text and as JUnit."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any
from xml.etree import ElementTree as xml

PASS, WRONG, UNKNOWN, LEFT_OUT = "pass", "wrong", "unknown", "left out"


@dataclass(frozen=True)
class RuleFinding:
    """A verdict of one conversation on one rule.

    `wrong`: the implementation broke the rule. `unknown`: the harness could not tell; `cause` says
    why, in the same words for every rule with that cause. `left out`: the implementation says that
    it has no such thing, or the rule says that it may be left out.
    """

    rule: str
    verdict: str
    conversation: str
    step: str = ""
    expected: str = ""
    sent: str = ""
    came: str = ""
    cause: str = ""


@dataclass
class Verdict:
    """The verdict on one rule; `findings` are those that are not `pass`."""

    rule: str
    level: str
    says: str
    section: str
    verdict: str = UNKNOWN
    findings: list[RuleFinding] = field(default_factory=list)

    def as_data(self) -> dict[str, Any]:
        return asdict(self)


def verdicts(requirements: Iterable[dict[str, Any]], findings: list[RuleFinding]) -> list[Verdict]:
    """Returns a verdict for each requirement.

    It is wrong if any finding is wrong, and unknown if no conversation judged the rule.
    """
    judgement = []
    for row in requirements:
        own = [finding for finding in findings if finding.rule == row["id"]]
        kinds = {finding.verdict for finding in own}
        worst = next((kind for kind in (WRONG, UNKNOWN, PASS, LEFT_OUT) if kind in kinds), UNKNOWN)
        bad = [finding for finding in own if finding.verdict == worst != PASS]
        if worst == WRONG and row["level"] == "may":
            worst = LEFT_OUT
        judgement.append(Verdict(row["id"], row["level"], row["says"], row["section"], worst, bad))
    return judgement


def exit_code(verdicts: Iterable[Verdict]) -> int:
    """Returns 1 if a rule with level `must` was broken, 2 if a verdict is unknown, else 0."""
    kinds = {
        verdict.verdict
        for verdict in verdicts
        if verdict.level == "must" or verdict.verdict == UNKNOWN
    }
    return 1 if WRONG in kinds else 2 if UNKNOWN in kinds else 0


WIDTH = 80
_MOST = 3  # findings shown for one rule


def counts(verdicts: list[Verdict]) -> dict[str, int]:
    kinds = Counter(verdict.verdict for verdict in verdicts)
    numbers = {kind.replace(" ", "_"): kinds[kind] for kind in (PASS, WRONG, UNKNOWN, LEFT_OUT)}
    return {"rules": len(verdicts), **numbers}


def as_text(verdicts: list[Verdict]) -> str:
    """Returns the report as text: broken rules, unknown ones by cause, left out ones, kept ones."""
    lines: list[str] = []
    for verdict in verdicts:
        if verdict.verdict == WRONG:
            lines += [f"{WRONG:<8} {verdict.rule}", *_reasons(verdict)]
    for cause, rules in _by_cause(verdicts).items():
        lines += _unshown(cause, rules)
    lines += [f"{LEFT_OUT:<8} {one.rule}" for one in verdicts if one.verdict == LEFT_OUT]
    lines += [f"{PASS:<8} {verdict.rule}" for verdict in verdicts if verdict.verdict == PASS]
    numbers = counts(verdicts)
    lines += [
        "",
        f"Rules: {numbers['rules']}. {numbers[PASS]} kept, {numbers[WRONG]} broken (wrong),",
    ]
    lines[-1] += f" {numbers[UNKNOWN]} that the harness could not tell (unknown)."
    if numbers["left_out"]:
        lines.append(f"{numbers['left_out']} are left out, as init says or as the rule allows.")
    return "\n".join(lines) + "\n"


def _by_cause(verdicts: list[Verdict]) -> dict[str, list[Verdict]]:
    causes: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        if verdict.verdict == UNKNOWN:
            cause = verdict.findings[0].cause if verdict.findings else "no conversation came to it"
            causes.setdefault(cause, []).append(verdict)
    return causes


def _unshown(cause: str, rules: list[Verdict]) -> Iterator[str]:
    """Yields a cause once, with its rules and the first finding."""
    count = "1 rule" if len(rules) == 1 else f"{len(rules)} rules"
    [first, *more] = _wrapped(f"not shown because {cause}: {count}")
    yield f"{UNKNOWN:<8} {first.lstrip()}"
    yield from more
    yield from _wrapped(", ".join(verdict.rule for verdict in rules))
    for finding in rules[0].findings[:1]:
        yield from _finding(finding)


def _reasons(verdict: Verdict) -> Iterator[str]:
    yield from _wrapped(f"{verdict.says} ({verdict.level}; docs/{verdict.section})")
    if not verdict.findings:
        yield from _wrapped("No conversation came to it.")
    for finding in verdict.findings[:_MOST]:
        yield from _finding(finding)
    if len(verdict.findings) > _MOST:
        yield from _wrapped(f"And {len(verdict.findings) - _MOST} more; --format json has all.")


def _finding(finding: RuleFinding) -> Iterator[str]:
    yield from _wrapped(f"In {finding.conversation}, {finding.step}:")
    for name, text in _parts(finding):
        yield from _wrapped(f"{name:<8} {text}", "  ")


def _parts(finding: RuleFinding) -> Iterator[tuple[str, str]]:
    why = "expected" if finding.verdict == WRONG else "because"
    for name, text in ((why, finding.expected), ("sent", finding.sent), ("came", finding.came)):
        if text:
            yield name, text


def _wrapped(text: str, more: str = "") -> list[str]:
    first = " " * 9 + more
    return textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=first + more)


def as_junit(verdicts: list[Verdict], name: str) -> str:
    """Returns JUnit XML: a case for each rule, a class for each area.

    `wrong` is a failure, `unknown` an error.
    """
    total = counts(verdicts)
    numbers = {"tests": total["rules"], "failures": total[WRONG], "errors": total[UNKNOWN]}
    attributes = {"name": name, **{key: str(value) for key, value in numbers.items()}}
    suite = xml.Element("testsuite", attributes)
    for verdict in verdicts:
        area = verdict.rule.partition(".")[0]
        case = xml.SubElement(suite, "testcase", {"classname": area, "name": verdict.rule})
        if verdict.verdict == LEFT_OUT:
            xml.SubElement(case, "skipped")
        elif verdict.verdict != PASS:
            kind = "failure" if verdict.verdict == WRONG else "error"
            detail = xml.SubElement(case, kind, {"message": verdict.says})
            detail.text = _plain("\n".join(line.strip() for line in _reasons(verdict)))
    xml.indent(suite)
    return xml.tostring(suite, "unicode", xml_declaration=True) + "\n"


def _plain(text: str) -> str:
    """Replaces control characters that XML does not allow."""
    return "".join(char if char >= " " or char in "\n\t" else "\ufffd" for char in text)
