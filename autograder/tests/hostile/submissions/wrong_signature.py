async def run(source, handle):
    pass
