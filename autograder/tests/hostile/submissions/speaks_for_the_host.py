import os


async def run(source, handle, *, workers, stop):
    os.write(3, b'["confirmed","forged","",0,0,""]\n')
    async for message in source:
        await handle(message)
        await message.ack()
