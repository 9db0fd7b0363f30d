import os


async def run(source, handle, *, workers, stop):
    os.closerange(3, 256)
    async for message in source:
        await handle(message)
        await message.ack()
