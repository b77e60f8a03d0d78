"""A harness in miniature: spawns the coprocess and asks it things."""

from __future__ import annotations

import itertools
import json
import subprocess
from collections.abc import Callable
from typing import Any

OnEvent = Callable[[dict[str, Any]], None]


class Client:
    """A client; `ask` returns a result's data, or raises the coprocess's error."""

    def __init__(self, command: list[str], **options: Any) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **options
        )
        self._ids = itertools.count(1)

    def ask(self, method: str, on_event: OnEvent = lambda event: None, **params: Any) -> Any:
        assert self._process.stdin and self._process.stdout
        request = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            message = json.loads(line)
            if message.get("method") == "event":
                on_event(message["params"])
            elif "error" in message:
                raise RuntimeError(message["error"]["data"])
            else:
                return message["result"]["data"]
        raise RuntimeError("the coprocess has ended")

    def close(self) -> int:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        self._process.stdout.close()
        return self._process.wait(30)
