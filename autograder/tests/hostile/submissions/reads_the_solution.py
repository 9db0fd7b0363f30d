import os
from pathlib import Path

import autograder

ROOT = Path(autograder.__file__).parent.parent
TARGETS = [
    *(ROOT / name for name in ("README.md", "pyproject.toml", "exercises", "solutions")),
    ROOT / "solutions" / "03_concurrency" / "01_worker_pool" / "test_hidden.py",
    Path("/etc/passwd"),
    Path("/proc") / str(os.getppid()) / "environ",
    Path.home() / ".ssh",
]


async def run(source, handle, *, workers, stop):
    for target in TARGETS:
        try:
            print("FOUND", os.listdir(target) if target.is_dir() else target.read_bytes())
        except OSError as error:
            print("refused:", type(error).__name__)
    raise NotImplementedError
