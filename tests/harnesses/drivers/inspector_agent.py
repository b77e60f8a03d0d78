"""The Inspector's command line as an agent: `inspector_agent.py COMMAND...`; the command starts the
server, anew for each call.

The Inspector knows no models: this asks one over Chat Completions, and calls what it wants.
"""

import json
import subprocess
import sys
from typing import Any

from openai import OpenAI


def inspect(*flags: str) -> Any:
    command = ["inspector", "--cli", *flags, "--", *sys.argv[1:]]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        return json.loads(done.stdout)
    except ValueError:
        return {"content": [{"text": done.stdout + done.stderr}]}


def call(name: str, arguments: dict[str, Any]) -> str:
    pairs = [
        f"{key}={value if isinstance(value, str) else json.dumps(value)}"
        for key, value in arguments.items()
    ]
    flags = [word for pair in pairs for word in ("--tool-arg", pair)]
    result = inspect("--method", "tools/call", "--tool-name", name, *flags)
    return "\n".join(part["text"] for part in result["content"])


def main() -> None:
    model = OpenAI()
    tools: list[Any] = [
        {
            "type": "function",
            "function": {
                "name": tool["name"],
                "description": tool["description"],
                "parameters": tool["inputSchema"],
            },
        }
        for tool in inspect("--method", "tools/list")["tools"]
    ]
    messages: list[Any] = [{"role": "user", "content": "go"}]
    while True:
        answer = model.chat.completions.create(model="scripted", messages=messages, tools=tools)
        said = answer.choices[0].message
        messages.append(said.model_dump())
        if not said.tool_calls:
            print(said.content)
            return
        for wanted in said.tool_calls:
            text = call(wanted.function.name, json.loads(wanted.function.arguments))
            messages.append({"role": "tool", "tool_call_id": wanted.id, "content": text})


main()
