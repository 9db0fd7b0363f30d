async def run(source, handle, *, workers, stop):
    while True:
        pass
