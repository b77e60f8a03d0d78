"""An agent of openai-agents: `openai_agents.py COMMAND...`; the command starts the MCP server."""

import asyncio
import sys

from agents import Agent, OpenAIChatCompletionsModel, Runner, set_tracing_disabled
from agents.mcp import MCPServerStdio
from openai import AsyncOpenAI


async def main() -> None:
    set_tracing_disabled(True)
    params = {"command": sys.argv[1], "args": sys.argv[2:]}
    async with MCPServerStdio(params=params, client_session_timeout_seconds=60) as server:
        model = OpenAIChatCompletionsModel(model="scripted", openai_client=AsyncOpenAI())
        agent = Agent(name="scripted", model=model, mcp_servers=[server])
        print((await Runner.run(agent, "go", max_turns=30)).final_output)


asyncio.run(main())
