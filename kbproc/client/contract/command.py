"""The commands of `kbproc contract`, from what was typed to what is told.

Owns: which conversations are needed for which rules, and the answer of each command.
Refuses to know: flags and how a shell prints (the shell does), and how anything is judged.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbproc import PROTOCOL, SCHEMA_VERSION, __version__
from kbproc.client.contract.clients import judge_client, rules_in
from kbproc.client.contract.judge import judge, rules_of
from kbproc.client.contract.kit import Kit, KitError, kit_in, own_kit
from kbproc.client.contract.report import as_junit, as_text, counts
from kbproc.client.contract.verdicts import Finding, exit_code, verdicts

PATIENCE_SECONDS = 30.0
Progress = Callable[[str, int, int, str], None]


@dataclass
class Answer:
    """`text` is for people; `bare`: it is all that is printed, whatever the format."""

    data: Any
    text: str
    exit: int = 0
    bare: bool = False

    @property
    def partial(self) -> dict[str, Any] | None:
        """As an answer says that not all went well."""
        if not self.exit:
            return None
        said = f"{self.data['wrong']} of {self.data['rules']} rules are broken, and"
        said += f" {self.data['unknown']} could not be told."
        return {"type": "operation.partial", "exit_code": self.exit, "message": said}


def run(name: str, words: list[str], flag: Callable[[str], Any], progress: Progress) -> Answer:
    """`name`: the command's second word. Raises KitError."""
    given = flag("--kit")
    kit = own_kit() if given is None else kit_in(_path(given))
    return _COMMANDS[name](kit, words, flag, progress)


def _path(text: str) -> Path:
    return Path(os.path.expanduser(text))  # noqa: PTH111  never raises


def _check(kit: Kit, words: list[str], flag: Callable[[str], Any], progress: Progress) -> Answer:
    patience = _seconds(flag("--patience"))
    of = {one["name"]: (one, rules_of(one)) for one in kit.conversations()}
    return _judged(
        kit, words, flag, progress, of, lambda one, line: judge(one, line, kit, patience)
    )


def _seconds(text: str | None) -> float:
    if text is None:
        return PATIENCE_SECONDS
    if not text.isdecimal() or not int(text):
        raise KitError(f"--patience is {text!r}; it is a number of seconds, at least 1.")
    return float(text)


def _client(kit: Kit, words: list[str], flag: Callable[[str], Any], progress: Progress) -> Answer:
    of = {one["name"]: (one, rules_in(one)) for one in kit.conversations("clients")}
    return _judged(kit, words, flag, progress, of, lambda one, line: judge_client(one, line, kit))


def _judged(
    kit: Kit,
    words: list[str],
    flag: Callable[[str], Any],
    progress: Progress,
    of: Mapping[str, tuple[dict[str, Any], list[str]]],
    judged: Callable[[dict[str, Any], str], list[Finding]],
) -> Answer:
    line = flag("--exec")
    if words or not line:
        what = f"there is no place for {words[0]!r}" if words else "it needs --exec"
        raise KitError(f"What is judged is one command: {what}.", 'Write --exec "CMD …".')
    every = {rule for _, rules in of.values() for rule in rules}
    only = [name for name in (flag("--only") or "").split(",") if name]
    rows = [row for row in kit.chosen(only) if row["id"] in every]
    if not rows:
        raise KitError(f"--only {flag('--only')} names no rule that is judged here.")
    wanted = {row["id"] for row in rows}
    needed = [one for one, rules in of.values() if wanted & set(rules)]
    findings: list[Finding] = []
    for number, one in enumerate(needed, 1):
        progress("conversations", number, len(needed), one["name"])
        findings += judged(one, line)
    found = verdicts(rows, findings)
    data = {**counts(found), "verdicts": [one.as_data() for one in found]}
    code = exit_code(found)
    if flag("--junit"):
        return Answer(data, as_junit(found, line), code, bare=True)
    return Answer(data, as_text(found), code)


def _requirements(
    kit: Kit, words: list[str], flag: Callable[[str], Any], progress: Progress
) -> Answer:
    rows = kit.chosen(words)
    return Answer(rows, "".join(f"{row['id']} ({row['level']})\n  {row['says']}\n" for row in rows))


def _export(kit: Kit, words: list[str], flag: Callable[[str], Any], progress: Progress) -> Answer:
    if len(words) != 1:
        raise KitError("contract export needs a DIR.", "Name a folder that is new or empty.")
    folder = _path(words[0])
    versions = {"kbproc": __version__, "protocol": PROTOCOL, "schemas": f"v{SCHEMA_VERSION}"}
    files = kit.export(folder, versions)
    data = {"path": str(folder), "files": len(files), "versions": versions}
    return Answer(data, f"{len(files)} files in {folder}; begin with its README.md.\n")


_COMMANDS = {
    "check": _check,
    "client": _client,
    "export": _export,
    "requirements": _requirements,
}
