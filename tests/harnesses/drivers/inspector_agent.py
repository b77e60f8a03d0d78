"""The Inspector's command line as an agent: `inspector_agent.py COMMAND...`; the command starts the
server, anew for each call.

The Inspector has no models: this agent asks one over Chat Completions, and makes its tool calls.
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
        message = answer.choices[0].message
        messages.append(message.model_dump())
        if not message.tool_calls:
            print(message.content)
            return
        for request in message.tool_calls:
            text = call(request.function.name, json.loads(request.function.arguments))
            messages.append({"role": "tool", "tool_call_id": request.id, "content": text})


main()
