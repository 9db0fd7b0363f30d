import os


async def run(source, handle, *, workers, stop):
    os.write(3, b"\xff\xfe{not json}\n")
    async for message in source:
        await handle(message)
        await message.ack()
