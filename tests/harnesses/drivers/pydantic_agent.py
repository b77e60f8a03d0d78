"""An agent of pydantic-ai: `pydantic_agent.py COMMAND...`; the command starts the MCP server."""

import asyncio
import sys

from fastmcp.client.transports import StdioTransport
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.models.openai import OpenAIChatModel


async def main() -> None:
    server = MCPToolset(StdioTransport(command=sys.argv[1], args=sys.argv[2:]))
    agent = Agent(OpenAIChatModel("scripted"), toolsets=[server])
    async with agent:
        print((await agent.run("go")).output)


asyncio.run(main())
