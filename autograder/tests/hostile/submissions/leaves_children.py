import subprocess
import sys


async def run(source, handle, *, workers, stop):
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"], start_new_session=True)
    async for message in source:
        await handle(message)
        await message.ack()
