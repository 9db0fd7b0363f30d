async def run(source, handle, *, workers, stop):
    async for message in source
        await handle(message)
