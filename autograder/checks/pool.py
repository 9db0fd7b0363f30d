"""The nine guarantees of the worker pool, in one place for exercises to import."""

from __future__ import annotations

from autograder.checks.acks import ack_follows_work
from autograder.checks.concurrency import backpressure_holds, concurrency_is_bounded, pool_is_used
from autograder.checks.isolation import one_failure_is_one_failure
from autograder.checks.loss import no_message_is_lost
from autograder.checks.settlement import failed_work_is_not_acked
from autograder.checks.shutdown import shutdown_drains_in_flight, stop_means_no_new_work

__all__ = [
    "ack_follows_work",
    "backpressure_holds",
    "concurrency_is_bounded",
    "failed_work_is_not_acked",
    "no_message_is_lost",
    "one_failure_is_one_failure",
    "pool_is_used",
    "shutdown_drains_in_flight",
    "stop_means_no_new_work",
]
