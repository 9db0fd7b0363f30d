TABLE = {}
LIMIT = TABLE["limit"]


async def run(source, handle, *, workers, stop):
    pass
