"""Runs the commands of `kbproc contract`.

It picks the conversations that the requested rules need, and forms each command's answer.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kbproc import PROTOCOL, SCHEMA_VERSION, __version__
from kbproc.contract.clients import judge_client, rules_in
from kbproc.contract.judge import capabilities, is_answered, judge, rules_of
from kbproc.contract.kit import Kit, KitError, kit_in, own_kit
from kbproc.contract.verdicts import (
    LEFT_OUT,
    UNKNOWN,
    WRONG,
    RuleFinding,
    as_junit,
    as_text,
    counts,
    exit_code,
    verdicts,
)

PATIENCE_SECONDS = 30.0
LATE_SECONDS = 3.0  # the patience after a wait that ended in vain
MOST_SILENT = 3  # conversations without an answer, after which no more are tried
TOGETHER = min(4, os.cpu_count() or 1)  # conversations at once
_OURS, _THEIRS = "kbproc < ", "yours  < "
Scene = dict[str, Any]
Judged = Iterator[tuple[Scene, list[RuleFinding]]]
Progress = Callable[[str, int, int, str], None]
Say = Callable[[str], None]


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
    name: str,
    words: list[str],
    flag: Callable[[str], Any],
    progress: Progress,
    say: Say = lambda line: None,
) -> CommandAnswer:
    """Runs the command whose second word is `name`. Raises KitError.

    `say` gets what is known before the end: each broken rule, as soon as a conversation shows it.
    """
    folder = flag("--kit")
    kit = own_kit() if folder is None else kit_in(_path(folder))
    return _COMMANDS[name](kit, words, flag, progress, say)


def _path(text: str) -> Path:
    return Path(os.path.expanduser(text))  # noqa: PTH111  never raises


class _Judge:
    """Judges one conversation after another; none once nothing answered the first few.

    Each would cost the whole patience again, because a server that knows neither ping nor an error
    for a broken line knows no more later. For the same reason patience drops after a wait in vain.
    Conversations about parts that init leaves out are not held.
    """

    def __init__(self, kit: Kit, patience: float) -> None:
        self._kit, self._patience = kit, patience
        self._silent, self._is_answered = 0, False
        self._parts: list[str] | None = None
        self.transcript: list[str] = []

    def all(self, conversations: Iterable[Scene], line: str) -> Judged:
        """Yields each conversation's findings, in order.

        Once one was answered, the others are held several at a time, each with its own process and
        store.
        """
        remaining = list(conversations)
        while remaining and not self._is_answered:
            conversation = remaining.pop(0)
            yield conversation, self._findings(conversation, line)
        with ThreadPoolExecutor(TOGETHER) as pool:
            findings = pool.map(lambda conversation: self._findings(conversation, line), remaining)
            yield from zip(remaining, findings, strict=True)

    def _findings(self, conversation: Scene, line: str) -> list[RuleFinding]:
        if not self._is_answered and self._silent == MOST_SILENT:
            why = f"no request of the first {MOST_SILENT} conversations was answered"
            return list(_unheld(conversation, UNKNOWN, why))
        part = conversation.get("part")
        if self._parts is not None and part not in self._parts:
            return list(_unheld(conversation, LEFT_OUT, f"capabilities.parts lacks {part}"))
        transcript: list[str] = []
        self.transcript = transcript
        findings = judge(conversation, line, self._kit, self._patience, transcript)
        self._is_answered |= is_answered(transcript)
        self._parts = capabilities(transcript).get("parts", self._parts)
        self._silent += 1
        if any("nothing came within" in finding.cause for finding in findings):
            self._patience = min(self._patience, LATE_SECONDS)
        return findings


def _unheld(conversation: dict[str, Any], verdict: str, why: str) -> Iterable[RuleFinding]:
    for rule in rules_of(conversation):
        yield RuleFinding(rule, verdict, conversation["name"], "not run", expected=why, cause=why)


def _check(
    kit: Kit, words: list[str], flag: Callable[[str], Any], progress: Progress, say: Say
) -> CommandAnswer:
    judge_next = _Judge(kit, _seconds(flag("--patience")))
    profile, name = _names(flag("--profile")), flag("--conversation")
    kit.chosen([], profile)  # raises KitError for an unknown part
    conversations = {
        conversation["name"]: (conversation, rules_of(conversation))
        for conversation in kit.conversations()
        if not profile or conversation.get("part") in profile
    }
    if name is None:
        return _judged(kit, words, flag, progress, say, conversations, judge_next.all)
    if name not in conversations:
        values = tuple(conversations)
        raise KitError(f"There is no conversation {name!r}.", "", typed=name, values=values)
    chosen = {name: conversations[name]}
    answer = _judged(kit, words, flag, progress, say, chosen, judge_next.all)
    path = kit.folder / "transcripts" / f"{name}.txt"
    # No splitlines(): a text may hold U+2028.
    model = path.read_text(encoding="utf-8").split("\n")[:-1] if path.is_file() else []
    if not answer.bare:
        answer.data["transcript"] = judge_next.transcript
        answer.text = f"{_beside(model, judge_next.transcript)}\n{answer.text}"
    return answer


def _beside(model: Iterable[str], transcript: Iterable[str]) -> str:
    """Returns each line that was sent, what came of it from kbproc, and what came of it here.

    Answers may come in another order than kbproc's, and after a later line.
    """
    ours, lines = list(_exchanges(model)), []
    for number, (sent, came) in enumerate(_exchanges(transcript)):
        lines.append(sent)
        lines += [f"{_OURS}{line}" for line in (ours[number][1] if number < len(ours) else ())]
        lines += [f"{_THEIRS}{line}" for line in came]
    return "".join(f"{line}\n" for line in lines if line)


def _exchanges(lines: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
    """Yields each line that was sent, or "" for the beginning, and what came before the next."""
    sent, came = "", list[str]()
    for line in lines:
        if line.startswith("> "):
            yield sent, came
            sent, came = line, []
        else:
            came.append(line.removeprefix("< "))
    yield sent, came


def _names(text: str | None) -> list[str]:
    return [name for name in (text or "").split(",") if name]


def _seconds(text: str | None) -> float:
    if text is None:
        return PATIENCE_SECONDS
    if not text.isdecimal() or not int(text):
        raise KitError(f"--patience is {text!r}; it is a number of seconds, at least 1.")
    return float(text)


def _client(
    kit: Kit, words: list[str], flag: Callable[[str], Any], progress: Progress, say: Say
) -> CommandAnswer:
    scenes = {scene["name"]: (scene, rules_in(scene)) for scene in kit.conversations("clients")}

    def judged(needed: Iterable[Scene], line: str) -> Judged:
        return ((scene, judge_client(scene, line, kit)) for scene in needed)

    return _judged(kit, words, flag, progress, say, scenes, judged)


def _judged(
    kit: Kit,
    words: list[str],
    flag: Callable[[str], Any],
    progress: Progress,
    say: Say,
    scenes: Mapping[str, tuple[Scene, list[str]]],
    findings_of: Callable[[Iterable[Scene], str], Judged],
) -> CommandAnswer:
    line = flag("--exec")
    if words or not line:
        problem = f"there is no place for {words[0]!r}" if words else "it needs --exec"
        raise KitError(f"What is judged is one command: {problem}.", 'Write --exec "CMD …".')
    judged_rules = {rule for _, rules in scenes.values() for rule in rules}
    only = _names(flag("--only"))
    rows = [row for row in kit.chosen(only) if row["id"] in judged_rules]
    if not rows:
        raise KitError(f"--only {flag('--only')} names no rule that is judged here.")
    chosen_rules = {row["id"] for row in rows}
    needed = [scene for scene, rules in scenes.values() if chosen_rules & set(rules)]
    findings: list[RuleFinding] = []
    reported: set[str] = set()
    for number, (scene, new) in enumerate(findings_of(needed, line), 1):
        progress("conversations", number, len(needed), scene["name"])
        findings += new
        for finding in new:
            if finding.verdict == WRONG and finding.rule in chosen_rules - reported:
                reported.add(finding.rule)
                say(f"{finding.rule} is broken in {scene['name']}: {finding.expected}")
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
    text = as_text(judgement)
    for row in kit.chosen(only):
        if "unjudged" in row and not only:
            text += f"Not judged: {row['id']}, because {row['unjudged']}.\n"
    return CommandAnswer(data, text, code)


def _not_started(findings: list[RuleFinding]) -> str | None:
    """Returns why the command did not start in the first conversation, as it won't in any other."""
    are_all = findings and all(one.verdict == UNKNOWN and one.step == "start" for one in findings)
    return findings[0].expected if are_all else None


def _requirements(
    kit: Kit, words: list[str], flag: Callable[[str], Any], progress: Progress, say: Say
) -> CommandAnswer:
    rows = kit.chosen(words)
    text = "".join(f"{row['id']} ({_kind(row)})\n  {row['says']}\n" for row in rows)
    return CommandAnswer(rows, text)


def _kind(row: dict[str, Any]) -> str:
    """Returns a rule's level, its part, and whether it is not judged."""
    unjudged = ["not judged"] if "unjudged" in row else []
    return ", ".join([row["level"], row["part"], *unjudged])


def _export(
    kit: Kit, words: list[str], flag: Callable[[str], Any], progress: Progress, say: Say
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
