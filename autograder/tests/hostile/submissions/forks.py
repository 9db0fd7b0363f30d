import os


async def run(source, handle, *, workers, stop):
    async for message in source:
        os.fork()
        await handle(message)
        await message.ack()
