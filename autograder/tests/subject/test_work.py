"""What handlers raise, one try after the other."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

from autograder.messaging import Permanent, Transient
from autograder.subject.work import ERRORS, Worker


async def kinds_raised(tries: int, **work: object) -> list[type[BaseException] | None]:
    """The types of what the first tries of one message raise; None for one that returns."""
    nobody: Any = None
    message: Any = SimpleNamespace(id="order-1", body=json.dumps({"work": work}).encode())
    worker, found = Worker(nobody), []
    for _ in range(tries):
        try:
            await worker.do(message)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - that is what is asked
            found.append(type(error))
        else:
            found.append(None)
    return found


async def test_failures_come_in_their_order_and_then_the_work_is_done():
    assert await kinds_raised(5, transient=2, error=1, cancelled=1) == [
        Transient, Transient, ERRORS[0], asyncio.CancelledError, None,
    ]  # fmt: skip


async def test_each_error_is_of_another_kind():
    assert await kinds_raised(7, transient=1, error=6) == [Transient, *ERRORS, ERRORS[0]]
    assert not any(issubclass(each, Transient | Permanent) for each in ERRORS)


async def test_a_permanent_failure_is_of_a_kind_of_its_own():
    (kind,) = await kinds_raised(1, permanent=True)
    assert kind is not None
    assert issubclass(kind, Permanent)
    assert kind is not Permanent
