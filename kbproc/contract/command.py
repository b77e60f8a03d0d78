"""Runs the commands of `kbproc contract`.

It picks the conversations that the requested rules need, and forms each command's answer.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kbproc import PROTOCOL, SCHEMA_VERSION, __version__
from kbproc.contract.clients import judge_client, rules_in
from kbproc.contract.judge import is_answered, judge, rules_of
from kbproc.contract.kit import Kit, KitError, kit_in, own_kit
from kbproc.contract.verdicts import (
    UNKNOWN,
    RuleFinding,
    as_junit,
    as_text,
    counts,
    exit_code,
    verdicts,
)

PATIENCE_SECONDS = 30.0
MOST_SILENT = 3  # conversations without an answer, after which no more are tried
Progress = Callable[[str, int, int, str], None]


@dataclass
class CommandAnswer:
    """A command's answer: `text` is for people; a `bare` one is printed as it is in any format."""

    data: Any
    text: str
    exit: int = 0
    bare: bool = False

    @property
    def partial(self) -> dict[str, Any] | None:
        """Returns the error of a partial success; None if every rule was kept."""
        if not self.exit:
            return None
        message = f"{self.data['wrong']} of {self.data['rules']} rules are broken, and"
        message += f" {self.data['unknown']} could not be told."
        return {"type": "operation.partial", "exit_code": self.exit, "message": message}


def run(
    name: str, words: list[str], flag: Callable[[str], Any], progress: Progress
) -> CommandAnswer:
    """Runs the command whose second word is `name`. Raises KitError."""
    folder = flag("--kit")
    kit = own_kit() if folder is None else kit_in(_path(folder))
    return _COMMANDS[name](kit, words, flag, progress)


def _path(text: str) -> Path:
    return Path(os.path.expanduser(text))  # noqa: PTH111  never raises


class _Judge:
    """Judges one conversation after another; none once nothing answered the first few.

    Each would cost the whole patience again, because a server that knows neither ping nor an error
    for a broken line knows no more later.
    """

    def __init__(self, kit: Kit, patience: float) -> None:
        self._kit, self._patience = kit, patience
        self._silent, self._is_answered = 0, False

    def __call__(self, conversation: dict[str, Any], line: str) -> list[RuleFinding]:
        if not self._is_answered and self._silent == MOST_SILENT:
            why = f"no request of the first {MOST_SILENT} conversations was answered"
            rules = rules_of(conversation)
            return [
                RuleFinding(rule, UNKNOWN, conversation["name"], "not run", expected=why, cause=why)
                for rule in rules
            ]
        transcript: list[str] = []
        findings = judge(conversation, line, self._kit, self._patience, transcript)
        self._is_answered |= is_answered(transcript)
        self._silent += 1
        return findings


def _check(
    kit: Kit, words: list[str], flag: Callable[[str], Any], progress: Progress
) -> CommandAnswer:
    judge_next = _Judge(kit, _seconds(flag("--patience")))
    conversations = {
        conversation["name"]: (conversation, rules_of(conversation))
        for conversation in kit.conversations()
    }
    return _judged(kit, words, flag, progress, conversations, judge_next)


def _seconds(text: str | None) -> float:
    if text is None:
        return PATIENCE_SECONDS
    if not text.isdecimal() or not int(text):
        raise KitError(f"--patience is {text!r}; it is a number of seconds, at least 1.")
    return float(text)


def _client(
    kit: Kit, words: list[str], flag: Callable[[str], Any], progress: Progress
) -> CommandAnswer:
    scenes = {scene["name"]: (scene, rules_in(scene)) for scene in kit.conversations("clients")}
    return _judged(
        kit, words, flag, progress, scenes, lambda scene, line: judge_client(scene, line, kit)
    )


def _judged(
    kit: Kit,
    words: list[str],
    flag: Callable[[str], Any],
    progress: Progress,
    scenes: Mapping[str, tuple[dict[str, Any], list[str]]],
    findings_of: Callable[[dict[str, Any], str], list[RuleFinding]],
) -> CommandAnswer:
    line = flag("--exec")
    if words or not line:
        problem = f"there is no place for {words[0]!r}" if words else "it needs --exec"
        raise KitError(f"What is judged is one command: {problem}.", 'Write --exec "CMD …".')
    judged_rules = {rule for _, rules in scenes.values() for rule in rules}
    only = [name for name in (flag("--only") or "").split(",") if name]
    rows = [row for row in kit.chosen(only) if row["id"] in judged_rules]
    if not rows:
        raise KitError(f"--only {flag('--only')} names no rule that is judged here.")
    chosen_rules = {row["id"] for row in rows}
    needed = [scene for scene, rules in scenes.values() if chosen_rules & set(rules)]
    findings: list[RuleFinding] = []
    for number, scene in enumerate(needed, 1):
        progress("conversations", number, len(needed), scene["name"])
        findings += findings_of(scene, line)
        if (why := _not_started(findings)) is not None:
            findings = [replace(findings[0], rule=row["id"]) for row in rows]
            break
    judgement = verdicts(rows, findings)
    data = {**counts(judgement), "verdicts": [verdict.as_data() for verdict in judgement]}
    code = exit_code(judgement)
    if why is not None and not flag("--junit"):
        return CommandAnswer(data, f"{why}; so no rule could be judged.\n", code)
    if flag("--junit"):
        return CommandAnswer(data, as_junit(judgement, line), code, bare=True)
    return CommandAnswer(data, as_text(judgement), code)


def _not_started(findings: list[RuleFinding]) -> str | None:
    """Returns why the command did not start in the first conversation, as it won't in any other."""
    are_all = findings and all(one.verdict == UNKNOWN and one.step == "start" for one in findings)
    return findings[0].expected if are_all else None


def _requirements(
    kit: Kit, words: list[str], flag: Callable[[str], Any], progress: Progress
) -> CommandAnswer:
    rows = kit.chosen(words)
    return CommandAnswer(
        rows, "".join(f"{row['id']} ({row['level']})\n  {row['says']}\n" for row in rows)
    )


def _export(
    kit: Kit, words: list[str], flag: Callable[[str], Any], progress: Progress
) -> CommandAnswer:
    if len(words) != 1:
        raise KitError("contract export needs a DIR.", "Name a folder that is new or empty.")
    folder = _path(words[0])
    versions = {"kbproc": __version__, "protocol": PROTOCOL, "schemas": f"v{SCHEMA_VERSION}"}
    files = kit.export(folder, versions)
    data = {"path": str(folder), "files": len(files), "versions": versions}
    return CommandAnswer(data, f"{len(files)} files in {folder}; begin with its README.md.\n")


_COMMANDS = {
    "check": _check,
    "client": _client,
    "export": _export,
    "requirements": _requirements,
}
