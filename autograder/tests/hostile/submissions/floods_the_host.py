import os


async def run(source, handle, *, workers, stop):
    line = b'["run raised","","",0,0,"' + b"x" * 900_000 + b'"]\n'
    while True:
        os.write(3, line)
