"""A client that is given tasks, and a server that is awkward: what the client makes of it.

Owns: giving tasks, reading reports, and judging both them and what the server was told.
Refuses to know: the server's script, and which language the client speaks.
"""

from __future__ import annotations

import json
import shlex
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from kbproc.client.contract import awkward
from kbproc.client.contract.always import parsed, shown
from kbproc.client.contract.expect import mismatch
from kbproc.client.contract.kit import Kit
from kbproc.client.contract.peer import Late, NotStarted, Peer, command_of
from kbproc.client.contract.verdicts import PASS, UNKNOWN, WRONG, Finding

TASK_SECONDS = 30.0  # the kit's own bound: what takes longer hangs
_ALWAYS = ("client.requests", "client.ids", "client.end")
_VARIABLE = "KBPROC_SERVER"


def rules_in(scene: dict[str, Any]) -> list[str]:
    own = [one["rule"] for one in scene["expect"] if "rule" in one]
    return [scene["rule"], *own, *_ALWAYS]


def judge_client(scene: dict[str, Any], command: str, kit: Kit) -> list[Finding]:
    """Every rule that was judged in one scene, with its verdict."""
    with tempfile.TemporaryDirectory(prefix="contract-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        script, record = folder / "script.json", folder / "record"
        script.write_text(json.dumps(scene["lives"]), encoding="utf-8")
        server = [sys.executable, "-I", "-S", awkward.__file__, str(script), str(record)]
        found = Scene(scene, kit)
        try:
            words = command_of(command, {"server": shlex.join(server)}, _VARIABLE)
            found.play(Peer(words))
        except NotStarted as failed:
            found.unknown(str(failed))
            return found.findings
        lines = record.read_text(encoding="utf-8").splitlines() if record.exists() else []
        found.look([json.loads(line) for line in lines])
        return found.findings


class Scene:
    """One client in one scene."""

    def __init__(self, scene: dict[str, Any], kit: Kit) -> None:
        self.findings: list[Finding] = []
        self._scene, self._kit = scene, kit
        self._reports: list[Any] = []
        self._told, self._step = "", "start"
        self._code: int | None = None

    def unknown(self, why: str) -> None:
        for rule in dict.fromkeys(rules_in(self._scene)):
            self._find(rule, UNKNOWN, why, self._told)

    def play(self, client: Peer) -> None:
        """Task by task; a report that does not come ends it."""
        try:
            for number, task in enumerate(self._scene["tasks"], 1):
                self._step = f"task {number}: {task['do']}"
                client.send(json.dumps({"task": number, **task}).encode() + b"\n")
                line = client.line(time.monotonic() + TASK_SECONDS)
                if line is None:
                    break
                self._reports.append(parsed(line))
            client.end()
            self._code = client.wait(time.monotonic() + TASK_SECONDS)
        except Late:
            self._step += f" (nothing in {TASK_SECONDS:g} seconds)"
        finally:
            self._told = client.told()
            client.kill()

    def look(self, noted: list[dict[str, Any]]) -> None:
        if not noted:
            self.unknown("the client started no server")
            return
        sent = [parsed(one["line"].encode()) for one in noted if "line" in one]
        subject = {"reports": self._reports, "sent": sent}
        rule = self._scene["rule"]
        if len(self._reports) < len(self._scene["tasks"]):
            self._find(rule, WRONG, "a report of each task", f"none; stderr: {self._told}")
            for other in {*rules_in(self._scene)} - {rule, "client.requests", "client.ids"}:
                self._find(other, UNKNOWN, "a report of each task did not come", "")
        else:
            for expectation in self._scene["expect"]:
                why = mismatch(expectation, subject)
                self._judge(expectation.get("rule", rule), why, subject)
            ended = [one for one in noted if one.get("ends")] or self._scene.get("dies")
            why = None if ended and self._code == 0 else "an end of the server's stdin, and exit 0"
            self._judge("client.end", why, f"exit {self._code}")
        for line in sent:
            self._judge("client.requests", self._no_request(line), line)
        self._judge("client.ids", _ids(sent), sent)

    def _no_request(self, line: Any) -> str | None:
        if not isinstance(line, dict) or line.get("jsonrpc") != "2.0":
            return "a JSON-RPC 2.0 request"
        if not isinstance(line.get("method"), str) or not isinstance(line.get("params", {}), dict):
            return "a method, and params by name"
        return self._kit.misfit(f"{line['method']}.params", line.get("params", {}))

    def _judge(self, rule: str, why: str | None, came: Any) -> None:
        self._find(rule, WRONG if why else PASS, why or "", shown(came))

    def _find(self, rule: str, verdict: str, expected: str, came: str) -> None:
        told = (self._step, expected, "", came) if verdict != PASS else ("", "", "", "")
        self.findings.append(Finding(rule, verdict, self._scene["name"], *told))


def _ids(sent: list[Any]) -> str | None:
    ids = [one["id"] for one in sent if isinstance(one, dict) and "id" in one]
    fit = all(type(id) in {int, str} for id in ids)
    return None if fit else "ids that are strings or integers"
