import os


async def run(source, handle, *, workers, stop):
    print("no connection to the broker")
    os._exit(69)
