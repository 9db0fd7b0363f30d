import time


async def run(source, handle, *, workers, stop):
    async for message in source:
        time.sleep(3600)
