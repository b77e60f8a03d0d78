"""FastMCP's client as an agent: `fastmcp_agent.py COMMAND...`; the command starts the server.

FastMCP has no models: this agent asks one over Chat Completions, and makes its tool calls.
"""

import asyncio
import json
import sys
from typing import Any

from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from openai import AsyncOpenAI


async def main() -> None:
    model = AsyncOpenAI()
    transport = StdioTransport(command=sys.argv[1], args=sys.argv[2:])
    async with Client(transport) as client:
        tools = [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.input_schema,
                },
            }
            for tool in await client.list_tools()
        ]
        messages: list[Any] = [{"role": "user", "content": "go"}]
        while True:
            answer = await model.chat.completions.create(
                model="scripted", messages=messages, tools=tools
            )
            message = answer.choices[0].message
            messages.append(message.model_dump())
            if not message.tool_calls:
                print(message.content)
                return
            for call in message.tool_calls:
                arguments = json.loads(call.function.arguments)
                try:
                    result = await client.call_tool_mcp(call.function.name, arguments)
                    text = "\n".join(part.text for part in result.content)
                except Exception as error:  # noqa: BLE001  the model gets the error
                    text = f"{type(error).__name__}: {error}"
                messages.append({"role": "tool", "tool_call_id": call.id, "content": text})


asyncio.run(main())
