import asyncio
import sys


async def leave():
    sys.exit(0)


async def run(source, handle, *, workers, stop):
    task = asyncio.create_task(leave())
    async for message in source:
        await handle(message)
        await message.ack()
    await task
