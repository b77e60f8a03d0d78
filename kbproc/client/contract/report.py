"""Verdicts as text for people and as JUnit for whoever runs tests.

Owns: both forms.
Refuses to know: how verdicts are reached, and where a report goes.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator
from xml.etree import ElementTree as xml

from kbproc.client.contract.verdicts import PASS, UNKNOWN, WRONG, Finding, Verdict

WIDTH = 80
_MOST = 3  # findings of one rule that are shown
_ORDER = (WRONG, UNKNOWN, PASS)


def counts(found: list[Verdict]) -> dict[str, int]:
    told = Counter(one.verdict for one in found)
    return {"rules": len(found), **{kind: told[kind] for kind in (PASS, WRONG, UNKNOWN)}}


def as_text(found: list[Verdict]) -> str:
    """What is wrong comes last, where a terminal shows it."""
    lines: list[str] = []
    for kind in reversed(_ORDER):
        for one in found:
            if one.verdict == kind:
                lines += [f"{kind:<8} {one.rule}"]
                lines += [] if kind == PASS else _reasons(one)
    told = counts(found)
    lines += ["", f"Rules: {told['rules']}. {told[PASS]} kept, {told[WRONG]} broken (wrong),"]
    lines[-1] += f" {told[UNKNOWN]} that the harness could not tell (unknown)."
    return "\n".join(lines) + "\n"


def _reasons(one: Verdict) -> Iterator[str]:
    yield from _wrapped(f"{one.says} ({one.level}; docs/{one.section})")
    if not one.findings:
        yield from _wrapped("No conversation came to it.")
    for finding in one.findings[:_MOST]:
        yield from _wrapped(f"In {finding.conversation}, {finding.step}:")
        for name, text in _parts(finding):
            yield from _wrapped(f"{name:<8} {text}", "  ")
    if len(one.findings) > _MOST:
        yield from _wrapped(f"And {len(one.findings) - _MOST} more; --format json has all.")


def _parts(finding: Finding) -> Iterator[tuple[str, str]]:
    why = "expected" if finding.verdict == WRONG else "because"
    for name, text in ((why, finding.expected), ("sent", finding.sent), ("came", finding.came)):
        if text:
            yield name, text


def _wrapped(text: str, more: str = "") -> list[str]:
    first = " " * 9 + more
    return textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=first + more)


def as_junit(found: list[Verdict], name: str) -> str:
    """A rule is a case, an area a class; `wrong` is a failure, `unknown` an error."""
    told = counts(found)
    numbers = {"tests": told["rules"], "failures": told[WRONG], "errors": told[UNKNOWN]}
    given = {"name": name, **{key: str(value) for key, value in numbers.items()}}
    suite = xml.Element("testsuite", given)
    for one in found:
        area = one.rule.partition(".")[0]
        case = xml.SubElement(suite, "testcase", {"classname": area, "name": one.rule})
        if one.verdict != PASS:
            kind = "failure" if one.verdict == WRONG else "error"
            told_in = xml.SubElement(case, kind, {"message": one.says})
            told_in.text = _plain("\n".join(line.strip() for line in _reasons(one)))
    xml.indent(suite)
    return xml.tostring(suite, "unicode", xml_declaration=True) + "\n"


def _plain(text: str) -> str:
    """XML has no place for most control characters."""
    return "".join(char if char >= " " or char in "\n\t" else "\ufffd" for char in text)
