"""How much of the ideal throughput a pool reaches while the examiner watches every step.

    uv run python -m autograder.benchmarks.examiner_overhead [--engine nats] [--pool FILE]

200 workers on 4,000 messages of 50 ms could handle 4,000 a second. The figure is read from the
history: from the first handler's start to the last one's finish, as a share of the ideal. The pool
is the variant that hands nothing over, its workers take for themselves: what is missing is then the
examiner's and the adapter's, and not the pool's.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
from pathlib import Path

from autograder import brokers, catalog
from autograder.brokers import Server
from autograder.exam import Exam, Zygote, isolation_here
from autograder.exam.engines import open_engine
from autograder.model import Exercise, Kind

WORKERS, MESSAGES, WORK_S = 200, 4_000, 0.05


async def measure(exercise: Exercise, pool: Path, server: Server, zygote: Zygote) -> float:
    """Share of the ideal, 0 to 1, of one run of a pool."""
    engine = await open_engine(server.engine, server.url)
    exam = Exam(
        engine=engine,
        zygote=zygote,
        submission=pool,
        call=exercise.call,
        seed=1,
    )
    try:
        orders = exam.messages(MESSAGES, sleep_s=WORK_S)
        async with exam.start(workers=WORKERS, prefetch=1_000) as run:
            await run.pause()  # all messages are there before the pool begins
            await run.publish(orders)
            await run.resume()
            await run.until(settled=MESSAGES, timeout_s=60)
    finally:
        await engine.close()
    history = exam.histories[0]
    took_s = history.of(Kind.FINISHED)[-1].at - history.of(Kind.STARTED)[0].at
    return (MESSAGES * WORK_S / WORKERS) / took_s


def main() -> None:
    """Print each run's share of the ideal and their median."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--engine", default="nats")
    parser.add_argument("--runs", type=int, default=7)
    exercise = catalog.find("03_concurrency/01_worker_pool")
    parser.add_argument(
        "--pool", type=Path, default=exercise.solution_folder / "variants/pullers.py"
    )
    arguments = parser.parse_args()
    zygote = Zygote(arguments.engine, isolation_kind=isolation_here())
    with brokers.acquire(arguments.engine) as server, zygote:
        zygote.wait_ready()
        shares = [
            asyncio.run(measure(exercise, arguments.pool, server, zygote))
            for _ in range(arguments.runs)
        ]
    figures = " ".join(f"{share:.2f}" for share in shares)
    print(
        f"{arguments.engine} {server.version}: {figures}; median {statistics.median(shares):.3f} of the ideal"
    )


if __name__ == "__main__":
    main()
