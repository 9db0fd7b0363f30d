async def run(source, handle, *, workers, stop):
    for _ in range(100):
        print("x" * (1 << 20))
    async for message in source:
        await handle(message)
        await message.ack()
