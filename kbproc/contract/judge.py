"""Runs one conversation with an implementation and judges it.

Each step sends something and may wait for one message; contract/README.md describes the steps to
authors. A failure that a rule forbids is `wrong`. After any other failure the harness could not
tell, so the rules that depended on it are `unknown`.
"""

from __future__ import annotations

import base64
import json
import signal
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from kbproc.contract import always
from kbproc.contract.always import key, shown
from kbproc.contract.exchange import Exchange, ExchangeFailed, Late, NotStarted, event_of
from kbproc.contract.expect import ABSENT, NotThere, mismatch, resolved
from kbproc.contract.kit import Kit
from kbproc.contract.verdicts import PASS, UNKNOWN, WRONG, RuleFinding

Step = dict[str, Any]


def action_of(step: Step) -> str:
    return next(name for name in ACTIONS if name in step)


def _ask(exchange: Exchange, step: Step) -> Any:
    id = step["id"] if "id" in step else exchange.number()
    params = resolved(step.get("params", {}), exchange.named)
    exchange.add_request(id, step["ask"])
    exchange.send(_line({"jsonrpc": "2.0", "id": id, "method": step["ask"], "params": params}))
    if "until" in step:
        return exchange.wait(lambda message: _is_event(message, id, step["until"]))
    return None if step.get("leave") else _answer(exchange, id)


def _tell(exchange: Exchange, step: Step) -> Any:
    params = resolved(step.get("params", {}), exchange.named)
    exchange.send(_line({"jsonrpc": "2.0", "method": step["tell"], "params": params}))


def _line_as_it_is(exchange: Exchange, step: Step) -> Any:
    """Sends a raw line; `asks` holds the ids and methods of the requests in it."""
    for id, method in step.get("asks", ()):
        exchange.add_request(id, method)
    exchange.send(_raw(exchange, step))
    if "answer" not in step:
        return None
    if step["answer"] is None:
        return exchange.refusal(lambda message: _answers(message, None))
    return _answer(exchange, step["answer"])


def _raw(exchange: Exchange, step: Step) -> bytes:
    if "bytes" in step:
        return base64.b64decode(str(step["bytes"]))
    if "line" in step:
        return str(step["line"]).encode()
    limit: int = resolved(step["over"], exchange.named)
    head = b'{"jsonrpc":"2.0","id":"long","method":"ping","params":{"x":"'
    return head + b"x" * (limit + 1) + b'"}}'


def _batch(exchange: Exchange, step: Step) -> Any:
    """Sends a batch; returns the array of answers, or the first answer that comes alone."""
    batch = resolved(step["batch"], exchange.named)
    ids = [request["id"] for request in batch if "id" in request]
    for request in batch:
        if "id" in request:
            exchange.add_request(request["id"], request["method"])
    exchange.send(_line(batch))
    if not ids:
        return None
    return exchange.wait(lambda m: isinstance(m, list) or any(_answers(m, id) for id in ids))


def _burst(exchange: Exchange, step: Step) -> Any:
    """Sends many requests in one write; returns the data of the errors among the answers."""
    ids = [f"burst-{number}" for number in range(step["times"])]
    for id in ids:
        exchange.add_request(id, step["burst"])
    lines = [{"jsonrpc": "2.0", "id": id, "method": step["burst"], "params": {}} for id in ids]
    exchange.send(b"\n".join(map(_line, lines)))
    answers = [_answer(exchange, id) for id in ids]
    return [answer["error"]["data"] for answer in answers if "error" in answer]


def _await(exchange: Exchange, step: Step) -> Any:
    if "event" in step:
        where = resolved(step.get("where", {}), exchange.named)
        return exchange.wait(
            lambda message: (
                _is_event(message, step["await"], step["event"])
                and mismatch(where, message) is None
            )
        )
    return _answer(exchange, step["await"])


def _end(exchange: Exchange, step: Step) -> Any:
    return exchange.finish(None)


def _signal(exchange: Exchange, step: Step) -> Any:
    return exchange.finish(signal.Signals[f"SIG{step['signal']}"])


def _restart(exchange: Exchange, step: Step) -> Any:
    exchange.start()


def _answer(exchange: Exchange, id: Any) -> Any:
    return exchange.wait(lambda message: _answers(message, id))


def _answers(message: Any, id: Any) -> bool:
    if not isinstance(message, dict) or "method" in message or "id" not in message:
        return False
    return key(message["id"]) == key(id)


def _is_event(message: Any, id: Any, type: str) -> bool:
    event = event_of(message)
    return event.get("type") == type and key(event.get("request_id")) == key(id)


def _line(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


# Each returns what a step waited for: an answer, an event, an array, an exit code, or None. They
# raise NotThere, Failed and Late.
ACTIONS: dict[str, Callable[[Exchange, Step], Any]] = {
    "ask": _ask,
    "tell": _tell,
    "line": _line_as_it_is,
    "bytes": _line_as_it_is,
    "over": _line_as_it_is,
    "batch": _batch,
    "burst": _burst,
    "await": _await,
    "end": _end,
    "signal": _signal,
    "restart": _restart,
}


_END: Step = {"end": True, "rule": "end.stdin", "exit": 0}


def rules_of(conversation: dict[str, Any]) -> list[str]:
    """Returns the rules of the steps, and the general rules that the conversation shows well."""
    return [*_own(conversation["steps"]), *conversation.get("shows", ())]


def _own(steps: Iterable[Step]) -> list[str]:
    rules = []
    for step in steps:
        rules += [step["rule"]] if "rule" in step else []
        rules += [expectation["rule"] for expectation in step.get("expect", ())]
    return list(dict.fromkeys(rules))


def judge(
    conversation: dict[str, Any],
    command: str,
    kit: Kit,
    patience: float,
    transcript: list[str] | None = None,
) -> list[RuleFinding]:
    """Returns a finding for every rule judged; appends the exchanged lines to `transcript`."""
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
    """A conversation in progress."""

    def __init__(self, conversation: dict[str, Any], exchange: Exchange, patience: float) -> None:
        self.findings: list[RuleFinding] = []
        self._conversation, self._exchange, self._patience = conversation, exchange, patience
        self._step = "start"

    def run(self) -> None:
        remaining = list(self._conversation["steps"])
        try:
            self._exchange.start()
            while remaining:
                self._do(remaining[0])
                remaining.pop(0)
            if self._exchange.running:
                remaining.append(_END)
                self._do(_END)
        except (ExchangeFailed, NotStarted) as failed:
            self._stopped_by(failed, remaining)

    def judge_always(self, kit: Kit) -> None:
        """Judges every line by the rules that always hold."""
        self._step, self._exchange.sent = "all lines", ""
        wrong = set()
        for output in self._exchange.outputs:
            for violation in always.violations(output, kit):
                if self._conversation.get("refuses") and violation.rule == "start.init_first":
                    continue
                wrong.add(violation.rule)
                self._record(violation.rule, WRONG, violation.expected, violation.came)
        if any(output.lines for output in self._exchange.outputs):
            for rule in always.RULES:
                if rule not in wrong:
                    self._record(rule, PASS)

    def _stopped_by(self, failed: ExchangeFailed | NotStarted, remaining: list[Step]) -> None:
        """Records the failed step's rule, and `unknown` for the rules of all steps that did not
        run.
        """
        stderr = self._exchange.stderr()
        came = failed.came if isinstance(failed, ExchangeFailed) else ""
        came = came or (f"stderr: {stderr}" if stderr else "")
        broke = None
        if isinstance(failed, ExchangeFailed) and failed.broke and remaining:
            broke = remaining[0].get("rule")
        if broke is not None:
            self._record(broke, WRONG, str(failed), came)
        for rule in (*_own(remaining), *self._conversation.get("shows", ())):
            if rule != broke:
                cause = failed.cause if isinstance(failed, ExchangeFailed) else str(failed)
                self._record(rule, UNKNOWN, str(failed), came, cause)

    def _do(self, step: Step) -> None:
        action = action_of(step)
        self._step = f"{action} {step[action]}" if isinstance(step[action], str) else action
        seconds = step.get("within", self._patience)
        self._exchange.deadline = time.monotonic() + seconds
        try:
            came = ACTIONS[action](self._exchange, step)
        except NotThere as missing:
            why = f"a step before failed: {missing}"
            raise ExchangeFailed(why, cause=str(missing)) from None
        except Late:
            broke = "within" in step
            why = f"nothing came within {seconds:g} seconds"
            raise ExchangeFailed(why, broke=broke, cause=f"{self._step}: {why}") from None
        self._exchange.named[step.get("as", "answer")] = came
        self._judge_outcome(step, came)
        for expectation in step.get("expect", ()):
            self._judge(expectation, came)

    def _judge_outcome(self, step: Step, came: Any) -> None:
        """Judges the step's outcome: a result, the expected error, or the exit code."""
        why = _unlike(step, came)
        if "rule" in step and not (why and _is_missing(step, came)):
            self._record(step["rule"], WRONG if why else PASS, why or "", shown(came))
        elif why is not None:
            cause = _cause(step, came, self._step)
            raise ExchangeFailed(
                f"a step before failed: expected {why}", cause=cause, came=shown(came)
            )

    def _judge(self, expectation: dict[str, Any], came: Any) -> None:
        rule = expectation["rule"]
        try:
            requirement = resolved({**expectation, "of": None, "same": None}, self._exchange.named)
            if "of" in expectation:
                came = self._exchange.subject(expectation["of"])
            if "same" in expectation:
                requirement["is"] = self._exchange.model(expectation["same"])
        except NotThere as missing:
            self._record(rule, UNKNOWN, f"a step before failed: {missing}", cause=str(missing))
            return
        why = mismatch(requirement, came)
        self._record(rule, WRONG if why else PASS, why or "", "" if came is ABSENT else shown(came))

    def _record(
        self, rule: str, verdict: str, expected: str = "", came: str = "", cause: str = ""
    ) -> None:
        details = ("", "", "", "", "")
        if verdict != PASS:
            details = (self._step, expected, self._exchange.sent, came, cause)
        self.findings.append(RuleFinding(rule, verdict, self._conversation["name"], *details))


def _unlike(step: Step, came: Any) -> str | None:
    """Returns the outcome that was expected instead; None if the outcome is right."""
    if "exit" in step:
        return None if came == step["exit"] else f"exit code {step['exit']}, not {came}"
    if not isinstance(came, dict) or "method" in came:
        return None
    error = _error_type(came)
    expected = step.get("error")
    if expected is None:
        return None if "error" not in came else f"a result, not {error}"
    return None if error == expected else f"the error {expected}, not {error or 'a result'}"


def _error_type(answer: dict[str, Any]) -> Any:
    """Returns the type of an error, or whatever stands in its place; None for a result."""
    error = answer.get("error")
    data = error.get("data") if isinstance(error, dict) else None
    return data.get("type") if isinstance(data, dict) else error


def _is_missing(step: Step, came: Any) -> bool:
    """Returns True for a method that the server lacks, which breaks no other rule."""
    is_unknown = isinstance(came, dict) and _error_type(came) == "input.unknown_method"
    return is_unknown and "ask" in step


def is_answered(transcript: Iterable[str]) -> bool:
    """Returns True if a line of the transcript answers anything but that a method is unknown."""
    lines = (line[2:].encode() for line in transcript if line.startswith("< "))
    answers = [one for line in lines for one in always.messages(line) if "method" not in one]
    return any(_error_type(answer) != "input.unknown_method" for answer in answers)


def _cause(step: Step, came: Any, name: str) -> str:
    """Returns why a step keeps others from being shown."""
    if _is_missing(step, came):
        return f"{step['ask']} is missing"
    error = _error_type(came) if isinstance(came, dict) else None
    if isinstance(error, str):
        return f"{name} was answered with {error}"
    return f"{name} had another outcome than it should"
