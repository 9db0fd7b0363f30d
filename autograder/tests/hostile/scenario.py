"""One small scenario: enough for a submission to do its damage in."""

from __future__ import annotations

from autograder.checks.pool import no_message_is_lost
from autograder.exam import guarantees


@guarantees(no_message_is_lost)
async def test_ten_orders(exam):
    async with exam.start(workers=2) as run:
        await run.publish(exam.messages(10))
        await run.until(settled=10)
