import os


async def run(source, handle, *, workers, stop):
    async for message in source:
        await handle(message)
        os._exit(0)
