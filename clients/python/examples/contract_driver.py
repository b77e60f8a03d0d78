"""Kbproc, judged: `kbproc contract client --exec "python contract_driver.py {server}"`."""

import json
import shlex
import sys
from typing import Any

from kbproc.client import Kbproc, KbprocError, Stream


def outcome(stream: Stream[Any]) -> dict[str, Any]:
    try:
        return {"data": stream.result().data}
    except KbprocError as error:
        return {"error": error.type}


def carried_out(kb: Kbproc, task: dict[str, Any]) -> dict[str, Any]:
    if task["do"] == "calls":
        asked = [kb.stream(method, params) for method, params in task["requests"]]
        return {"results": [outcome(stream) for stream in asked]}
    stream, events = kb.stream(task["method"], task["params"]), []
    try:
        for event in stream:
            events.append(event["type"])
    except KbprocError:
        pass  # the outcome tells
    return {"events": events, **outcome(stream)}


with Kbproc(command=shlex.split(sys.argv[1])) as kb:
    for line in sys.stdin:
        task = json.loads(line)
        print(json.dumps({"task": task["task"], **carried_out(kb, task)}), flush=True)
