import signal

for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)


async def run(source, handle, *, workers, stop):
    async for message in source:
        pass
