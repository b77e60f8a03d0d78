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
from kbproc.contract.verdicts import LEFT_OUT, PASS, UNKNOWN, WRONG, RuleFinding

Step = dict[str, Any]


def action_of(step: Step) -> str:
    return next(name for name in ACTIONS if name in step)


def _ask(exchange: Exchange, step: Step) -> Any:
    id = step["id"] if "id" in step else exchange.number()
    params = resolved(step.get("params", {}), exchange.named)
    if "may_refuse" in step:
        exchange.outputs[-1].optional_ids.append(id)
    else:
        exchange.add_request(id, step["ask"])
    exchange.send(_line({"jsonrpc": "2.0", "id": id, "method": step["ask"], "params": params}))
    if "may_refuse" in step:
        return exchange.refusal(lambda message: _answers(message, id) or _answers(message, None))
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
    if "may_refuse" in step:  # the id of a line that is refused may not be known
        exchange.outputs[-1].optional_ids.append(step["answer"])
    exchange.send(_raw(exchange, step))
    if "answer" not in step:
        return None
    if step["answer"] is None:
        return exchange.refusal(lambda message: _answers(message, None))
    came = exchange.wait(lambda m: _answers(m, step["answer"]) or _answers(m, None))
    # A server may refuse a line before it knows the id, and need not answer again.
    if came["id"] is None:
        exchange.outputs[-1].optional_ids.append(step["answer"])
    return came


def _raw(exchange: Exchange, step: Step) -> bytes:
    if "bytes" in step:
        return base64.b64decode(str(step["bytes"]))
    if "line" in step:
        return str(step["line"]).encode()
    if "deep" in step:
        return b"[" * int(step["deep"])
    length: int = resolved(step["over"], exchange.named) + step["by"]
    id = b"longer" if step["by"] else b"long"
    head, end = b'{"jsonrpc":"2.0","id":"' + id + b'","method":"ping","params":{"x":"', b'"}}'
    return head + b"x" * (length - len(head) - len(end)) + end


def _batch(exchange: Exchange, step: Step) -> Any:
    """Sends a batch; returns the array of answers, or the first answer that comes alone."""
    batch = resolved(step["batch"], exchange.named)
    requests = [one for one in batch if isinstance(one, dict)]
    ids = [request["id"] for request in requests if "id" in request]
    for request in requests:
        if "id" in request:
            exchange.add_request(request["id"], request["method"])
    exchange.send(_line(batch))
    if not ids:
        return None

    def answers(message: Any) -> bool:
        answers = message if isinstance(message, list) else [message]
        return any(_answers(one, id) for one in answers for id in ids)

    return exchange.wait(answers)


def _burst(exchange: Exchange, step: Step) -> Any:
    """Sends many requests in one write; returns the data of the errors among the answers."""
    ids = [f"burst-{number}" for number in range(step["times"])]
    for id in ids:
        exchange.add_request(id, step["burst"])
    lines = [{"jsonrpc": "2.0", "id": id, "method": step["burst"], "params": {}} for id in ids]
    exchange.send_many(list(map(_line, lines)), ids)
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
    if "last" in step:
        exchange.outputs[-1].optional_ids.append("last")
        exchange.send(step["last"].encode(), end=b"")
    return exchange.finish(None)


def _signal(exchange: Exchange, step: Step) -> Any:
    return exchange.finish(signal.Signals[f"SIG{step['signal']}"])


def _restart(exchange: Exchange, step: Step) -> Any:
    exchange.start()


def _deaf(exchange: Exchange, step: Step) -> Any:
    request = {"jsonrpc": "2.0", "method": step["deaf"], "params": {}}
    exchange.outputs[-1].optional_ids.append("unread")
    return exchange.unread(_line({**request, "id": "unread"}))


def _mark(exchange: Exchange, step: Step) -> Any:
    exchange.mark()


def _tear(exchange: Exchange, step: Step) -> Any:
    exchange.tear()


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
    "deep": _line_as_it_is,
    "batch": _batch,
    "burst": _burst,
    "await": _await,
    "end": _end,
    "signal": _signal,
    "restart": _restart,
    "deaf": _deaf,
    "mark": _mark,
    "tear": _tear,
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
        talk = Talk(conversation, exchange, patience, kit)
        try:
            talk.run()
        finally:
            exchange.stop()
        talk.judge_always()
        if transcript is not None:
            transcript += [line.replace(folder, "FOLDER") for line in exchange.transcript]
        return talk.findings


class Talk:
    """A conversation in progress."""

    def __init__(
        self, conversation: dict[str, Any], exchange: Exchange, patience: float, kit: Kit
    ) -> None:
        self.findings: list[RuleFinding] = []
        self._kit = kit
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

    def judge_always(self) -> None:
        """Judges every line by the rules that always hold."""
        self._step, self._exchange.sent = "all lines", ""
        wrong = set()
        blamed = {finding.came for finding in self.findings if finding.verdict == WRONG}
        for output in self._exchange.outputs:
            for violation in always.violations(output, self._kit):
                if self._conversation.get("refuses") and violation.rule == "start.init_first":
                    continue
                if violation.rule == "lines.fit_schema" and violation.came in blamed:
                    continue  # the rule that the line breaks says more
                wrong.add(violation.rule)
                self._record(violation.rule, WRONG, violation.expected, violation.came)
        shown_rules = {rule for one in self._exchange.outputs for rule in always.exercised(one)}
        for rule in always.RULES:
            if rule in shown_rules - wrong:
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
            self._judge_rule(remaining[0], str(failed), came)
        for rule in (*_own(remaining), *self._conversation.get("shows", ())):
            if rule != broke:
                cause = failed.cause if isinstance(failed, ExchangeFailed) else str(failed)
                self._record(rule, UNKNOWN, str(failed), came, cause)

    def _lacks(self, rules: Iterable[str]) -> str:
        """Returns a capability that these rules need and init says is left out, or "" for none."""
        has = self._exchange.named.get("init", {}).get("capabilities")
        needs = {self._kit.needs(rule) for rule in rules}
        return next((n for n in needs if isinstance(has, dict) and has.get(n) is False), "")

    def _do(self, step: Step) -> None:
        if lack := self._lacks(_own([step])):
            for rule in _own([step]):
                self._record(rule, LEFT_OUT, f"capabilities.{lack} is false")
            return
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
        is_right = self._judge_outcome(step, came)
        for expectation in () if _is_refused(step, came) else step.get("expect", ()):
            if is_right:
                self._judge({"given": step.get("given"), **expectation}, came)
            elif expectation["rule"] != step["rule"]:
                cause = _cause(step, came, self._step)
                self._record(expectation["rule"], UNKNOWN, cause, shown(came), cause)

    def _judge_outcome(self, step: Step, came: Any) -> bool:
        """Judges the step's outcome: a result, the expected error, or the exit code.

        Returns True if it is right. A wrong outcome meets no other expectation either, and the
        report would give one cause under several rules.
        """
        why = _unlike(step, came)
        if "rule" in step and not (why and _is_missing(step, came)):
            self._judge_rule(step, why, shown(came))
        elif why is not None:
            cause = _cause(step, came, self._step)
            raise ExchangeFailed(
                f"a step before failed: expected {why}", cause=cause, came=shown(came)
            )
        return why is None

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
        self._judge_rule(expectation, why, "" if came is ABSENT else shown(came))

    def _judge_rule(self, judging: dict[str, Any], why: str | None, came: str) -> None:
        """Records whether the rule of a step or an expectation was kept: it was unless `why` tells
        what was expected instead.

        Where the rule that it presupposes (`given`) was not kept, that one alone is blamed.
        """
        premise = judging.get("given")
        kinds = {finding.verdict for finding in self.findings if finding.rule == premise}
        if why and kinds - {PASS, LEFT_OUT}:
            cause = f"{premise} was not kept"
            self._record(judging["rule"], UNKNOWN, f"{cause}: expected {why}", came, cause)
        else:
            self._record(judging["rule"], WRONG if why else PASS, why or "", came)

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
    if "may_refuse" in step:
        return _unlike_or_refused(step, came, error)
    expected = step.get("error")
    if "answer" in step and key(came.get("id")) != key(step["answer"]) and "deaf" not in step:
        return f"an answer with the id {key(step['answer'])}, not {error or 'a result'}"
    if expected is None:
        return None if "error" not in came else f"a result, not {error}"
    return None if error == expected else f"the error {expected}, not {error or 'a result'}"


def _unlike_or_refused(step: Step, came: dict[str, Any], error: Any) -> str | None:
    """Returns the expected outcome of a request that may be refused, with or without its id."""
    id = step.get("id", step.get("answer"))
    is_refused = error == step["may_refuse"] and key(came.get("id")) in {key(id), "null"}
    is_answered = error is None and key(came.get("id")) == key(id)
    if is_refused or is_answered:
        return None
    return f"a result with the id {key(id)}, or {step['may_refuse']}, not {error or 'another id'}"


def _is_refused(step: Step, came: Any) -> bool:
    """Returns True for a refusal that is allowed, after which nothing more is expected."""
    return "may_refuse" in step and isinstance(came, dict) and "error" in came


def _error_type(answer: dict[str, Any]) -> Any:
    """Returns the type of an error, or whatever stands in its place; None for a result."""
    error = answer.get("error")
    data = error.get("data") if isinstance(error, dict) else None
    return data.get("type") if isinstance(data, dict) else error


def _is_missing(step: Step, came: Any) -> bool:
    """Returns True for a method that the server lacks, which breaks no other rule."""
    is_unknown = isinstance(came, dict) and _error_type(came) == "input.unknown_method"
    return is_unknown and "ask" in step


def capabilities(transcript: Iterable[str]) -> dict[str, Any]:
    """Returns the capabilities that init names; empty where there is none."""
    for line in transcript:
        event = event_of(always.parsed(line[2:].encode())) if line.startswith("< ") else {}
        if event.get("type") == "init" and isinstance(event.get("capabilities"), dict):
            return dict(event["capabilities"])
    return {}


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
