"""A kbproc that breaks one rule, for the contract kit to find.

`python -m tests.kit.broken NAME STORE` runs kbproc as a child and forwards its lines, as the break
changes them.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.kit import fixed

Message = dict[str, Any]
# Maps a line from or to the child to the lines that are forwarded in its place.
Change = Callable[["Between", bytes], Iterable[bytes]]


class Break:
    """`rules`: the rules that the kit must report. `long`: the break shows only after seconds."""

    def __init__(
        self,
        breaks: str,
        rules: set[str],
        from_child: Change | None = None,
        to_child: Change | None = None,
        **options: Any,
    ) -> None:
        self.breaks, self.rules = breaks, rules
        self.from_child = from_child or (lambda between, line: [line])
        self.to_child = to_child or (lambda between, line: [line])
        self.seen_in: tuple[str, ...] = options.pop("seen_in", ())
        self.long: bool = options.pop("long", False)
        self.options = options


class Between:
    """Forwards lines between a client and the child; `owed`: lines to the client, held back."""

    def __init__(self, broken: Break, child: int, to_child: int, from_child: int) -> None:
        self._broken, self._child = broken, child
        self._to_child, self._from_child = to_child, from_child
        self.owed: list[bytes] = []
        self.paid = False
        self.methods: dict[str, str] = {}
        self._writing = threading.Lock()

    def run(self) -> int:
        """Forwards until the child ends; returns the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._signalled)
        threading.Thread(target=self._tell, daemon=True).start()
        with os.fdopen(self._from_child, "rb") as lines:
            for line in lines:
                for changed in self._broken.from_child(self, line):
                    self.say(changed)
        _, status = os.waitpid(self._child, 0)
        code = os.waitstatus_to_exitcode(status)
        return int(self._broken.options.get("exit", code))

    def say(self, line: bytes) -> None:
        with self._writing, suppress(BrokenPipeError):
            view = memoryview(line)
            while view:
                view = view[os.write(1, view) :]

    def _tell(self) -> None:
        with os.fdopen(self._to_child, "wb", buffering=0) as child, os.fdopen(0, "rb") as client:
            with suppress(BrokenPipeError):
                for line in client:
                    self._remember(line)
                    for changed in self._broken.to_child(self, line):
                        view = memoryview(changed)
                        while view:
                            view = view[child.write(view) or 0 :]
            if self._broken.options.get("deaf_at_end"):
                os.kill(self._child, signal.SIGKILL)
                os._exit(0)

    def _remember(self, line: bytes) -> None:
        for one in parsed(line):
            if "id" in one and isinstance(one.get("method"), str):
                self.methods[json.dumps(one["id"])] = one["method"]

    def method_of(self, message: Message) -> str:
        return self.methods.get(json.dumps(message.get("id")), "")

    def _signalled(self, number: int, frame: Any) -> None:
        answer = self._broken.options.get("on", {}).get(signal.Signals(number).name, "pass on")
        if isinstance(answer, int):
            os.kill(self._child, signal.SIGKILL)
            os._exit(answer)
        if answer == "pass on":
            os.kill(self._child, number)


def parsed(line: bytes) -> list[Message]:
    """Returns the messages of a line; none if it is not JSON."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return []
    return [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, dict)]


def as_line(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode() + b"\n"


def of_answers(change: Callable[[Between, Message], Any], *methods: str) -> Change:
    """Changes the answers to these methods, or to all; a change may return other lines."""

    def changed_answer(between: Between, line: bytes) -> Iterable[bytes]:
        [message, *more] = parsed(line) or [{}]
        if more or "id" not in message or (methods and between.method_of(message) not in methods):
            return [line]
        changed = change(between, message)
        return [as_line(message)] if changed is None else changed

    return changed_answer


def of_events(change: Callable[[Message], Any], *types: str) -> Change:
    """Changes the events of streams of these types."""

    def changed_event(between: Between, line: bytes) -> Iterable[bytes]:
        [message, *more] = parsed(line) or [{}]
        event = message.get("params", {})
        if more or "method" not in message or event.get("type") not in types:
            return [line]
        changed = change(event)
        return [as_line(message)] if changed is None else changed

    return changed_event


def of_requests(change: Callable[[Between, Message], Any], *methods: str) -> Change:
    def changed_request(between: Between, line: bytes) -> Iterable[bytes]:
        [message, *more] = parsed(line) or [{}]
        if more or message.get("method") not in methods:
            return [line]
        changed = change(between, message)
        return [as_line(message)] if changed is None else changed

    return changed_request


def _error(message: Message, **members: Any) -> None:
    if "error" in message:
        message["error"]["data"].update(members)


def _drops(event: Message) -> Iterable[bytes] | None:
    return [] if "request_id" not in event else None


def _twice(event: Message) -> Iterable[bytes] | None:
    whole = as_line({"jsonrpc": "2.0", "method": "event", "params": event})
    return [whole, whole] if "request_id" not in event else None


def _index(by: int) -> Callable[[Message], None]:
    def change(event: Message) -> None:
        if event["index"] >= 2:
            event["index"] += by

    return change


def _changes_id(between: Between, message: Message) -> None:
    if isinstance(message["id"], str) and message["id"].isdecimal():
        message["id"] = int(message["id"])


def _answers_notification(between: Between, line: bytes) -> Iterable[bytes]:
    [message, *more] = parsed(line) or [{}]
    if not more and "id" not in message and message.get("method") == "kb.create":
        between.owed = [as_line({"jsonrpc": "2.0", "id": None, "error": _NO_ID})]
    return [line]


def _pays(between: Between, line: bytes) -> Iterable[bytes]:
    """Sends the owed lines before the next answer."""
    if b'"id"' not in line:
        return [line]
    owed, between.owed = between.owed, []
    return [*owed, line]


_NO_ID = {
    "code": -32600,
    "message": "There is no id.",
    "data": {
        "schema": "error/1",
        "type": "input.invalid_request",
        "message": "There is no id.",
        "exit_code": 1,
        "retryable": False,
        "hint": "Send an id.",
        "doc_url": "docs/errors.md#inputinvalid_request",
        "detail": {},
    },
}


def _splits_batch(between: Between, line: bytes) -> Iterable[bytes]:
    value = json.loads(line)
    return [as_line(one) for one in value] if isinstance(value, list) else [line]


def _dies_on_bytes(between: Between, line: bytes) -> Iterable[bytes]:
    try:
        line.decode()
    except UnicodeDecodeError:
        os._exit(1)
    return [line]


def _pong(between: Between, id: Any) -> Iterable[bytes]:
    """Answers the line as a ping with this id, without the child."""
    result = {"data": {"seq": 1}, "meta": {"schema": "ping/1", "seq": 1}}
    between.say(as_line({"jsonrpc": "2.0", "id": id, "result": result}))
    return []


def _takes_fraction(between: Between, line: bytes) -> Iterable[bytes]:
    [message, *more] = parsed(line) or [{}]
    id = message.get("id")
    return _pong(between, id) if not more and isinstance(id, float) else [line]


def _guesses_bytes(between: Between, line: bytes) -> Iterable[bytes]:
    try:
        line.decode()
    except UnicodeDecodeError:
        return _pong(between, json.loads(line.decode(errors="replace"))["id"])
    return [line]


def _takes_any_length(between: Between, line: bytes) -> Iterable[bytes]:
    return _pong(between, json.loads(line)["id"]) if len(line) > 16 << 20 else [line]


def _forgets_max_line_bytes(event: Message) -> None:
    event.get("capabilities", {}).pop("max_line_bytes", None)


def _lacks_method(between: Between, message: Message) -> Iterable[bytes]:
    return [as_line({**message, "method": "kb.make"})]


def _answers_null_id(between: Between, line: bytes) -> Iterable[bytes]:
    [message, *more] = parsed(line) or [{}]
    if not more and "id" in message and message["id"] is None:
        result = {"data": {"seq": 1}, "meta": {"schema": "ping/1", "seq": 1}}
        between.say(as_line({"jsonrpc": "2.0", "id": None, "result": result}))
        return []
    return [line]


def _forgets_token(between: Between, message: Message) -> None:
    message["params"].pop("client_token", None)


def _clamps(between: Between, message: Message) -> None:
    limit = message["params"].get("limit")
    if isinstance(limit, int):
        message["params"]["limit"] = min(max(limit, 1), 1000)


_OWN = "the wrapper's"


def _writes_in_dry_runs(between: Between, message: Message) -> Iterable[bytes]:
    if not message["params"].get("dry_run"):
        return [as_line(message)]
    real = {**message, "id": _OWN}
    real["params"] = {k: v for k, v in message["params"].items() if k != "dry_run"}
    return [as_line(message), as_line(real)]


def _hides_its_own(between: Between, line: bytes) -> Iterable[bytes]:
    """Sends the answer to the dry run after the answer to the write."""
    [message, *more] = parsed(line) or [{}]
    if message.get("id") == _OWN:
        owed, between.owed, between.paid = between.owed, [], True
        return owed
    dry = message.get("result", {}).get("meta", {}).get("dry_run")
    if more or between.paid or not dry or between.method_of(message) != "kb.create":
        return [line]
    between.owed = [line]
    return []


def _no_seq(between: Between, message: Message) -> None:
    if "result" in message:
        message["result"]["meta"].pop("seq", None)


def _says_a_number(between: Between, message: Message) -> None:
    if "result" in message:
        message["result"]["data"]["revision"] = "two"


def _twice_answered(between: Between, message: Message) -> Iterable[bytes]:
    return [as_line(message)] * 2


def _stale(between: Between, message: Message) -> None:
    if "result" in message and message["result"]["data"]["slug"] == "notes":
        message["result"]["data"]["name"] = "before"


def _loses_last(between: Between, line: bytes) -> Iterable[bytes]:
    return [] if b'"last-2"' in line and b'"result"' in line else [line]


def _ignores_cancel(between: Between, message: Message) -> None:
    """Answers what its end would be after timeout_ms, without that wait."""
    if message["id"] == "all" and "error" in message:
        text = "timeout_ms passed."
        message["error"] |= {"code": 401, "message": text}
        _error(message, type="operation.timeout", message=text, exit_code=4, retryable=True)
        _error(message, doc_url="docs/errors.md#operationtimeout", field="$.params.timeout_ms")


def _resumes_too_late(between: Between, message: Message) -> None:
    if message["params"].get("after_seq"):
        message["params"]["after_seq"] += 1


def _resumes_from_the_start(between: Between, message: Message) -> None:
    message["params"].pop("after", None)


def _takes_any_plan(between: Between, message: Message) -> Iterable[bytes] | None:
    """Accepts a stale plan as if it were current."""
    if "error" not in message or message["error"]["data"]["type"] != "resource.plan_stale":
        return None
    result = {
        "data": {"slug": "doomed", "documents": 0},
        "meta": {"schema": "kb.delete/1", "seq": 1},
    }
    return [as_line({"jsonrpc": "2.0", "id": message["id"], "result": result})]


def _leads_on(between: Between, message: Message) -> None:
    if "error" in message and message["error"]["data"].get("plan"):
        message["error"]["data"]["retry"] = {"method": "kb.delete", "params": {"slug": "doomed"}}


def _tells_inside(between: Between, message: Message) -> None:
    _error(message, hint='Traceback (most recent call last):\n  File "/srv/x.py", line 3, in f')


def _after_the_end(between: Between, message: Message) -> Iterable[bytes]:
    event = {"type": "warning", "request_id": message["id"], "index": 99, "message": "Too late."}
    late = {"jsonrpc": "2.0", "method": "event", "params": event}
    return [as_line(message), as_line(late)]


def _without_cursor(event: Message) -> None:
    event.pop("cursor", None)


def _loses_a_page(between: Between, message: Message) -> None:
    if "result" in message and isinstance(message["result"]["data"], list):
        message["result"]["data"] = message["result"]["data"][:1]


def _prints(between: Between, line: bytes) -> Iterable[bytes]:
    return [line, b"DEBUG: said a line\n"] if b'"ready"' in line else [line]


def _no_field(between: Between, message: Message) -> None:
    if "error" in message:
        message["error"]["data"].pop("field", None)


# Servers that lack a method: the kit can't check the rules that need it.
LACKS = {
    "lacks_kb_create": Break(
        "has no kb.create", set(), to_child=of_requests(_lacks_method, "kb.create")
    )
}
BREAKS = {
    "drops_init": Break("never says init", {"start.init_first"}, of_events(_drops, "init")),
    "second_init": Break("says init twice", {"start.init_once"}, of_events(_twice, "init")),
    "prints_on_stdout": Break("logs on stdout", {"lines.only_messages"}, _prints),
    "answers_null_id": Break(
        "takes null for an id", {"ids.null_refused"}, to_child=_answers_null_id
    ),
    "changes_id_type": Break('answers to "7" with 7', {"ids.as_sent"}, of_answers(_changes_id)),
    "takes_a_fraction": Break(
        "takes 1.5 for an id", {"ids.fraction_refused"}, to_child=_takes_fraction
    ),
    "guesses_bytes": Break(
        "replaces bytes that are no UTF-8", {"lines.invalid_utf8"}, to_child=_guesses_bytes
    ),
    "takes_any_length": Break(
        "reads a line of any length", {"lines.too_large"}, to_child=_takes_any_length
    ),
    "forgets_max_line_bytes": Break(
        "does not say how long a line may be",
        {"start.protocol", "lines.fit_schema"},
        of_events(_forgets_max_line_bytes, "init"),
        seen_in=("beginning", "long-line"),
    ),
    "dies_on_bad_utf8": Break(
        "dies of bytes that are no UTF-8", {"lines.invalid_utf8"}, to_child=_dies_on_bytes
    ),
    "answers_notification": Break(
        "answers a notification",
        {"notifications.unanswered", "batches.silent"},
        _pays,
        _answers_notification,
    ),
    "splits_batch": Break("answers a batch one by one", {"batches.one_array"}, _splits_batch),
    "double_response": Break(
        "answers twice",
        {"answers.once"},
        of_answers(_twice_answered, "kb.get"),
        seen_in=("revisions",),
    ),
    "clamps_limit": Break(
        "clamps a limit", {"params.out_of_range"}, to_child=of_requests(_clamps, "doc.list")
    ),
    "names_no_field": Break(
        "names no field",
        {"params.unknown_member", "params.wrong_type", "params.out_of_range"},
        of_answers(_no_field, "doc.list"),
    ),
    "wrong_error_code": Break(
        "has codes of its own",
        {"errors.code"},
        of_answers(lambda between, message: message.get("error", {}).update(code=-1)),
    ),
    "wrong_exit_code": Break(
        "has exit codes of its own",
        {"errors.exit_code"},
        of_answers(lambda between, message: _error(message, exit_code=77)),
    ),
    "traceback_in_message": Break(
        "shows its code in errors", {"errors.no_internals"}, of_answers(_tells_inside)
    ),
    "no_meta_seq": Break(
        "leaves meta.seq out", {"results.data_and_meta"}, of_answers(_no_seq, "kb.get")
    ),
    "wrong_type_in_result": Break(
        "says a number as text",
        {"lines.fit_schema"},
        of_answers(_says_a_number, "kb.update"),
    ),
    "forgets_token": Break(
        "forgets tokens",
        {"writes.token_once", "writes.token_duplicate", "writes.token_conflict", "kill.token"},
        to_child=of_requests(_forgets_token, "kb.create"),
    ),
    "dry_run_writes": Break(
        "writes in a dry run",
        {"writes.dry_run_writes_nothing"},
        _hides_its_own,
        of_requests(_writes_in_dry_runs, "kb.create"),
    ),
    "stale_read": Break(
        "reads what was before",
        {"results.reads_see_writes", "writes.expected_revision"},
        of_answers(_stale, "kb.get"),
        seen_in=("revisions",),
    ),
    "takes_stale_plan": Break(
        "carries out an old plan", {"confirm.plan_stale"}, of_answers(_takes_any_plan, "kb.delete")
    ),
    "leads_past_the_person": Break(
        "tells how to go on unasked", {"confirm.no_retry"}, of_answers(_leads_on, "kb.delete")
    ),
    "loses_items": Break(
        "loses half of each page", {"pages.complete"}, of_answers(_loses_a_page, "doc.list")
    ),
    "repeats_index": Break(
        "gives an index twice", {"streams.index"}, of_events(_index(-1), "item", "answer")
    ),
    "skips_index": Break(
        "leaves an index out", {"streams.index"}, of_events(_index(1), "item", "answer")
    ),
    "goes_on_after_the_end": Break(
        "says more after the response",
        {"streams.response_ends"},
        of_answers(_after_the_end, "chat"),
        seen_in=("answers",),
    ),
    "ignores_cancel": Break(
        "ignores $/cancel",
        {"cancel.answered"},
        of_answers(_ignores_cancel, "events.subscribe"),
    ),
    "subscribes_too_late": Break(
        "loses a record",
        {"log.resume"},
        to_child=of_requests(_resumes_too_late, "events.subscribe"),
        seen_in=("log",),
    ),
    "cursor_not_resumable": Break(
        "begins anew after any cursor",
        {"sessions.resume"},
        to_child=of_requests(_resumes_from_the_start, "session.resume"),
    ),
    "answer_without_cursor": Break(
        "gives no cursors",
        {"sessions.cursors", "lines.fit_schema"},
        of_events(_without_cursor, "references", "answer"),
        seen_in=("answers",),
    ),
    "loses_last_answer_on_eof": Break(
        "loses an answer at the end", {"answers.every_request"}, _loses_last
    ),
    "exits_1": Break(
        "ends with 1",
        {"end.stdin", "end.sigterm", "end.sigint"},
        exit=1,
        seen_in=("stdin-ends", "sigterm", "sigint"),
    ),
    "dies_of_sigterm": Break("dies of SIGTERM", {"end.sigterm", "end.waits"}, on={"SIGTERM": 143}),
    "ignores_sigterm": Break(
        "ignores SIGTERM", {"end.sigterm"}, on={"SIGTERM": "ignore"}, long=True
    ),
    "loses_writes_when_killed": Break(
        "forgets what it acknowledged",
        {"kill.writes_kept", "kill.token", "sessions.resume", "log.resume"},
        forgetful=True,
        seen_in=("killed",),
    ),
}


def main() -> int:
    name, store = sys.argv[1:3]
    broken = {**BREAKS, **LACKS}[name]
    if broken.options.get("forgetful"):
        store = f"{store}-{os.getpid()}"
    Path(store).parent.mkdir(parents=True, exist_ok=True)
    to_read, to_write = os.pipe()
    from_read, from_write = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(to_read, 0)
        os.dup2(from_write, 1)
        for fd in (to_read, to_write, from_read, from_write):
            os.close(fd)
        sys.argv[1:] = [store, "hash", "real=1", *sys.argv[3:]]
        return fixed.main()
    os.close(to_read)
    os.close(from_write)
    return Between(broken, child, to_write, from_read).run()


if __name__ == "__main__":
    fixed.leave(main())
