"""One conversation with an implementation, and what it shows.

Owns: which of the two verdicts a failure is: what a rule forbids is wrong; whatever else goes
amiss, the harness could not tell.
Refuses to know: how processes are held (peer.py), how steps are carried out (steps.py), and
what a report looks like.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kbproc.client.contract import always
from kbproc.client.contract.always import shown
from kbproc.client.contract.exchange import Exchange, Failed
from kbproc.client.contract.expect import NotThere, mismatch, resolved
from kbproc.client.contract.kit import Kit
from kbproc.client.contract.peer import Late, NotStarted
from kbproc.client.contract.steps import Step, action_of, carry_out
from kbproc.client.contract.verdicts import PASS, UNKNOWN, WRONG, Finding

_END: Step = {"end": True, "rule": "end.stdin", "exit": 0}


def rules_of(conversation: dict[str, Any]) -> list[str]:
    """Those that it judges by itself, and those that hold always and that it shows well."""
    return [*_own(conversation["steps"]), *conversation.get("shows", ())]


def _own(steps: Iterable[Step]) -> list[str]:
    found = []
    for step in steps:
        found += [step["rule"]] if "rule" in step else []
        found += [one["rule"] for one in step.get("expect", ())]
    return list(dict.fromkeys(found))


def judge(
    conversation: dict[str, Any],
    command: str,
    kit: Kit,
    patience: float,
    transcript: list[str] | None = None,
) -> list[Finding]:
    """Every rule that was judged, with its verdict; `transcript` gets what was said."""
    with tempfile.TemporaryDirectory(prefix="contract-", ignore_cleanup_errors=True) as folder:
        exchange = Exchange(command, conversation.get("arguments", ()), Path(folder))
        talk = Talk(conversation, exchange, patience)
        try:
            talk.run()
        finally:
            exchange.stop()
        talk.judge_always(kit)
        if transcript is not None:
            transcript += [line.replace(folder, "FOLDER") for line in exchange.transcript]
        return talk.findings


class Talk:
    """A conversation that is going on."""

    def __init__(self, conversation: dict[str, Any], exchange: Exchange, patience: float) -> None:
        self.findings: list[Finding] = []
        self._conversation, self._exchange, self._patience = conversation, exchange, patience
        self._step = "start"

    def run(self) -> None:
        left = list(self._conversation["steps"])
        try:
            self._exchange.start()
            while left:
                self._do(left[0])
                left.pop(0)
            if self._exchange.running:
                left.append(_END)
                self._do(_END)
        except (Failed, NotStarted) as failed:
            self._stopped_by(failed, left)

    def judge_always(self, kit: Kit) -> None:
        """What every line has to keep to."""
        self._step, self._exchange.sent = "all lines", ""
        wrong = set()
        for told in self._exchange.told:
            for one in always.broken(told, kit):
                if self._conversation.get("refuses") and one.rule == "start.init_first":
                    continue
                wrong.add(one.rule)
                self._find(one.rule, WRONG, one.expected, one.came)
        if any(told.lines for told in self._exchange.told):
            for rule in always.RULES:
                if rule not in wrong:
                    self._find(rule, PASS)

    def _stopped_by(self, failed: Failed | NotStarted, left: list[Step]) -> None:
        """The step's own rule, and those of all that could not be asked or shown any more."""
        told = self._exchange.stderr()
        came = f"stderr: {told}" if told else ""
        broke = None
        if isinstance(failed, Failed) and failed.broke and left:
            broke = left[0].get("rule")
        if broke is not None:
            self._find(broke, WRONG, str(failed), came)
        for rule in (*_own(left), *self._conversation.get("shows", ())):
            if rule != broke:
                self._find(rule, UNKNOWN, str(failed), came)

    def _do(self, step: Step) -> None:
        action = action_of(step)
        self._step = f"{action} {step[action]}" if isinstance(step[action], str) else action
        seconds = step.get("within", self._patience)
        self._exchange.deadline = time.monotonic() + seconds
        try:
            came = carry_out(step, self._exchange)
        except NotThere as missing:
            raise Failed(f"a step before failed: {missing}") from None
        except Late:
            broke = "within" in step
            raise Failed(f"nothing came within {seconds:g} seconds", broke=broke) from None
        self._exchange.kept[step.get("as", "answer")] = came
        self._judge_outcome(step, came)
        for expectation in step.get("expect", ()):
            self._judge(expectation, came)

    def _judge_outcome(self, step: Step, came: Any) -> None:
        """A result, the error that was to come, or the exit code."""
        why = _unlike(step, came)
        if "rule" in step:
            self._find(step["rule"], WRONG if why else PASS, why or "", shown(came))
        elif why is not None:
            raise Failed(f"a step before failed: expected {why}, and {shown(came)} came")

    def _judge(self, expectation: dict[str, Any], came: Any) -> None:
        rule = expectation["rule"]
        try:
            wanted = resolved({**expectation, "of": None, "same": None}, self._exchange.kept)
            if "of" in expectation:
                came = self._exchange.subject(expectation["of"])
            if "same" in expectation:
                wanted["is"] = self._exchange.subject(expectation["same"])
        except NotThere as missing:
            self._find(rule, UNKNOWN, f"a step before failed: {missing}")
            return
        why = mismatch(wanted, came)
        self._find(rule, WRONG if why else PASS, why or "", shown(came))

    def _find(self, rule: str, verdict: str, expected: str = "", came: str = "") -> None:
        told = ("", "", "", "")
        if verdict != PASS:
            told = (self._step, expected, self._exchange.sent, came)
        self.findings.append(Finding(rule, verdict, self._conversation["name"], *told))


def _unlike(step: Step, came: Any) -> str | None:
    """What the outcome should have been, if it is another."""
    if "exit" in step:
        return None if came == step["exit"] else f"exit code {step['exit']}, not {came}"
    if not isinstance(came, dict) or "method" in came:
        return None
    error = came.get("error")
    data = error.get("data") if isinstance(error, dict) else None
    found = data.get("type") if isinstance(data, dict) else error
    wanted = step.get("error")
    if wanted is None:
        return None if "error" not in came else f"a result, not {found}"
    return None if found == wanted else f"the error {wanted}, not {found or 'a result'}"
