import os


async def run(source, handle, *, workers, stop):
    for _ in range(1500):
        os.mkdir("d")
        os.chdir("d")
    async for message in source:
        await handle(message)
        await message.ack()
