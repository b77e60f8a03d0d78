"""Judges a client: gives it tasks, runs an awkward server for it, and reads its reports.

It judges both the reports and the lines that the server got.
"""

from __future__ import annotations

import json
import shlex
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from kbproc.contract import awkward
from kbproc.contract.always import parsed, shown
from kbproc.contract.exchange import Late, NotStarted, ProcessPeer, command_of
from kbproc.contract.expect import mismatch
from kbproc.contract.kit import Kit
from kbproc.contract.verdicts import PASS, UNKNOWN, WRONG, RuleFinding

TASK_SECONDS = 30.0  # the kit's own limit, because a client that takes longer hangs
_ALWAYS = ("client.requests", "client.ids", "client.end")
_VARIABLE = "KBPROC_SERVER"


def rules_in(scene: dict[str, Any]) -> list[str]:
    own = [expectation["rule"] for expectation in scene["expect"] if "rule" in expectation]
    return [scene["rule"], *own, *_ALWAYS]


def judge_client(scene: dict[str, Any], command: str, kit: Kit) -> list[RuleFinding]:
    """Returns a finding for every rule that the scene judges."""
    with tempfile.TemporaryDirectory(prefix="contract-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        script, record = folder / "script.json", folder / "record"
        script.write_text(json.dumps(scene["lives"]), encoding="utf-8")
        server = [sys.executable, "-I", "-S", awkward.__file__, str(script), str(record)]
        player = Scene(scene, kit)
        try:
            words = command_of(command, {"server": shlex.join(server)}, _VARIABLE)
            player.play(ProcessPeer(words))
        except NotStarted as failed:
            player.unknown(str(failed))
            return player.findings
        lines = record.read_text(encoding="utf-8").splitlines() if record.exists() else []
        player.judge([json.loads(line) for line in lines])
        return player.findings


class Scene:
    """One client in one scene."""

    def __init__(self, scene: dict[str, Any], kit: Kit) -> None:
        self.findings: list[RuleFinding] = []
        self._scene, self._kit = scene, kit
        self._reports: list[Any] = []
        self._stderr, self._step = "", "start"
        self._code: int | None = None

    def unknown(self, why: str) -> None:
        for rule in dict.fromkeys(rules_in(self._scene)):
            self._record(rule, UNKNOWN, why, self._stderr)

    def play(self, client: ProcessPeer) -> None:
        """Gives the client one task after another, until a report does not come."""
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
            self._stderr = client.stderr_end()
            client.kill()

    def judge(self, record: list[dict[str, Any]]) -> None:
        if not record:
            self.unknown("the client started no server")
            return
        sent = [parsed(row["line"].encode()) for row in record if "line" in row]
        subject = {"reports": self._reports, "sent": sent}
        rule = self._scene["rule"]
        if len(self._reports) < len(self._scene["tasks"]):
            self._record(rule, WRONG, "a report of each task", f"none; stderr: {self._stderr}")
            for other in {*rules_in(self._scene)} - {rule, "client.requests", "client.ids"}:
                self._record(other, UNKNOWN, "a report of each task did not come", "")
        else:
            for expectation in self._scene["expect"]:
                why = mismatch(expectation, subject)
                self._judge(expectation.get("rule", rule), why, subject)
            ended = [row for row in record if row.get("ends")] or self._scene.get("dies")
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
        self._record(rule, WRONG if why else PASS, why or "", shown(came))

    def _record(self, rule: str, verdict: str, expected: str, came: str) -> None:
        details = (self._step, expected, "", came) if verdict != PASS else ("", "", "", "")
        cause = expected if verdict == UNKNOWN else ""
        self.findings.append(RuleFinding(rule, verdict, self._scene["name"], *details, cause))


def _ids(sent: list[Any]) -> str | None:
    ids = [request["id"] for request in sent if isinstance(request, dict) and "id" in request]
    fit = all(type(id) in {int, str} for id in ids)
    return None if fit else "ids that are strings or integers"
