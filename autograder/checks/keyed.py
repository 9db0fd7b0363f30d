"""The guarantees of the keyed pool: eight of its own, and those of the worker pool that it shares."""

from __future__ import annotations

from autograder.checks.acks import ack_follows_work
from autograder.checks.concurrency import backpressure_holds, concurrency_is_bounded
from autograder.checks.isolation import one_failure_is_one_failure
from autograder.checks.keys import (
    keys_run_in_parallel,
    same_key_same_route_across_restarts,
    slow_key_does_not_block_others,
)
from autograder.checks.loss import no_message_is_lost
from autograder.checks.memory import memory_is_bounded
from autograder.checks.order import (
    empty_key_is_handled,
    one_at_a_time_per_key,
    order_is_kept_per_key,
    order_survives_a_retry,
)
from autograder.checks.settlement import failed_work_is_not_acked
from autograder.checks.shutdown import shutdown_drains_in_flight, stop_means_no_new_work

__all__ = [
    "ack_follows_work",
    "backpressure_holds",
    "concurrency_is_bounded",
    "empty_key_is_handled",
    "failed_work_is_not_acked",
    "keys_run_in_parallel",
    "memory_is_bounded",
    "no_message_is_lost",
    "one_at_a_time_per_key",
    "one_failure_is_one_failure",
    "order_is_kept_per_key",
    "order_survives_a_retry",
    "same_key_same_route_across_restarts",
    "shutdown_drains_in_flight",
    "slow_key_does_not_block_others",
    "stop_means_no_new_work",
]
