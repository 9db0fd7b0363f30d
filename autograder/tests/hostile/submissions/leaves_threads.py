import threading
import time


async def run(source, handle, *, workers, stop):
    threading.Thread(target=time.sleep, args=(3600,), daemon=False).start()
    async for message in source:
        await handle(message)
        await message.ack()
