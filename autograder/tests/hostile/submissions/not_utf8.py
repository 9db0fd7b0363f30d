# café
async def run(source, handle, *, workers, stop):
    pass
