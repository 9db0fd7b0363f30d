import asyncio


async def run(source, handle, *, workers, stop):
    while True:
        await asyncio.sleep(0)
