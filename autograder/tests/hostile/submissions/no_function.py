async def consume(source, handle, *, workers, stop):
    pass
