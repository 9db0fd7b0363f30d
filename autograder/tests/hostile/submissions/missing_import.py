import a_package_nobody_has


async def run(source, handle, *, workers, stop):
    pass
