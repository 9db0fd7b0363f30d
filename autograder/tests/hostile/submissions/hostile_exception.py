class Sly(Exception):
    def __str__(self):
        raise RuntimeError("no text for you")


async def run(source, handle, *, workers, stop):
    raise Sly
