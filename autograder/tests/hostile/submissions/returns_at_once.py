async def run(source, handle, *, workers, stop):
    return
