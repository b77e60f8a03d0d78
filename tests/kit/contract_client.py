"""A small client for the contract kit to judge.

`python contract_client.py SERVER [BREAK]`; a break is one mistake that the client makes.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

SERVER, BREAK = (*sys.argv[1:], "")[:2]
Message = dict[str, Any]


class Client:
    """Talks to one server; sends lost requests once more, to a new server, when it dies."""

    def __init__(self) -> None:
        self.last: float = 0
        self.begin()

    def begin(self) -> None:
        command = shlex.split(SERVER)
        self.server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, requests: list[tuple[str, Message]]) -> list[Message]:
        """Returns the events and answers of all requests in order of arrival."""
        try:
            return list(self.asked(requests))
        except EOFError:
            self.begin()
            if BREAK == "forgets_the_token":
                requests = [(name, {**params, "client_token": "new"}) for name, params in requests]
            return list(self.asked(requests))

    def asked(self, requests: list[tuple[str, Message]]) -> Iterator[Message]:
        open_ids = set()
        for method, params in requests:
            self.last += 1.5 if BREAK == "halves_ids" else 1
            open_ids.add(self.last)
            self.send({"jsonrpc": "2.0", "id": self.last, "method": method, "params": params})
        while open_ids:
            message = self.receive()
            if BREAK == "ends_at_warnings" and message.get("params", {}).get("type") == "warning":
                return
            open_ids.discard(message.get("id", 0))
            yield message

    def send(self, request: Message) -> None:
        assert self.server.stdin
        if BREAK == "by_position":
            request["params"] = list(request["params"].values())
        self.server.stdin.write(json.dumps(request).encode() + b"\n")
        self.server.stdin.flush()

    def receive(self) -> Message:
        assert self.server.stdout
        stdout: Any = self.server.stdout
        line = stdout.read1(64) if BREAK == "reads_pieces" else stdout.readline()
        if BREAK == "reads_one_line":
            line = os.read(stdout.fileno(), 1 << 16) if self.last > 1 else line
            line = line[: line.find(b"\n") + 1] or line
        if not line.endswith(b"\n"):
            if BREAK == "waits_for_ever":
                self.server.wait()
                signal.pause()
            raise EOFError
        message: Message = json.loads(line)
        if BREAK == "knows_all_events" and message.get("params", {}).get("type") == "weather":
            raise ValueError(line)
        if BREAK == "knows_all_members" and message.keys() - _MEMBERS:
            raise ValueError(line)
        return message


_MEMBERS = {"jsonrpc", "id", "method", "params", "result", "error"}


def outcome(message: Message) -> Message:
    if "result" in message:
        return {"data": message["result"]["data"]}
    error_type = message["error"]["data"]["type"]
    if BREAK == "knows_all_errors" and error_type.startswith("later."):
        error_type = "internal.error"
    return {"error": error_type}


def done(client: Client, task: Message) -> Message:
    requests = task.get("requests") or [(task["method"], task["params"])]
    came = client.ask([(name, params) for name, params in requests])
    if BREAK != "answers_in_order":
        came.sort(key=lambda message: message.get("id", 0))
    answers = [outcome(message) for message in came if "id" in message]
    if task["do"] == "calls":
        return {"results": answers}
    events = [m["params"] for m in came if m.get("method") == "event"]
    types = [event["type"] for event in events if "request_id" in event]
    return {**answers[0], "events": types[:: 1 if BREAK != "loses_events" else 2]}


def main() -> None:
    client = Client()
    for line in sys.stdin:
        task = json.loads(line)
        print(json.dumps({"task": task["task"], **done(client, task)}), flush=True)
    assert client.server.stdin
    client.server.stdin.close()
    client.server.wait()
    sys.exit(3 if BREAK == "ends_badly" else 0)


if __name__ == "__main__":
    main()
