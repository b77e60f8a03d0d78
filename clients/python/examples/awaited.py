"""The same, awaited: many requests at the same time, and a task that takes its request with it."""

import asyncio
import sys

from kbproc.client import AsyncKbproc, Timeout


async def main(store: str) -> None:
    async with AsyncKbproc(store) as kb:
        texts = {"Tides": "High tide is at noon.", "Lamp": "The lamp is lit at eight."}
        wanted = [kb.doc.create(title=title, text=text) for title, text in texts.items()]
        added = await asyncio.gather(*wanted)
        print("added", len(added))
        found = await asyncio.gather(kb.search("tide"), kb.search("lamp"), kb.tag.list())
        print("best", [one.data["results"][0]["source"]["title"] for one in found[:2]])

        async for event in kb.chat.stream("When is the lamp lit?"):
            print(event.get("delta", ""), end="", flush=True)
        print()

        try:
            await kb.ping(min_seq=1_000_000, timeout=0.2)
        except Timeout as error:
            print(error.type)
        reading = asyncio.create_task(follow(kb))
        await kb.ping()
        reading.cancel()  # and the request with it


async def follow(kb: AsyncKbproc) -> None:
    async for event in kb.events.subscribe.stream():
        print(event["type"])


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
