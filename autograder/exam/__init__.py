"""The examiner's side: scenarios, runs, gates, faults and the recorder.

A hidden or visible test is a coroutine that takes an `Exam` and declares what it judges:

    from autograder.checks.pool import ack_follows_work, no_message_is_lost
    from autograder.exam import guarantees

    @guarantees(no_message_is_lost, ack_follows_work)
    async def test_crash_between_work_and_ack(exam):
        orders = exam.messages(40, keys=8)
        async with exam.start(workers=4) as run:
            await run.publish(orders)
            await run.until(finished=10)
            await run.kill()
            await run.restart()
            await run.until(settled=40)

It asserts nothing itself: each declared guarantee is judged on the run's history.
"""

from __future__ import annotations

from autograder.exam.exam import Exam
from autograder.exam.orders import Order
from autograder.exam.process import Zygote, isolation_here
from autograder.exam.run import Run
from autograder.exam.scenario import (
    Scenario,
    ScenarioOver,
    declared_by,
    guarantees,
    load_scenarios,
    simulated_only,
    why_simulated_only,
)

__all__ = [
    "Exam",
    "Order",
    "Run",
    "Scenario",
    "ScenarioOver",
    "Zygote",
    "declared_by",
    "guarantees",
    "isolation_here",
    "load_scenarios",
    "simulated_only",
    "why_simulated_only",
]
