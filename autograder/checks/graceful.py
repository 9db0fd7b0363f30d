"""The guarantees of a graceful shutdown, in one place for exercises to import."""

from __future__ import annotations

from autograder.checks.acks import ack_follows_work
from autograder.checks.closing import buffered_messages_are_returned, connection_closed_cleanly
from autograder.checks.concurrency import backpressure_holds, concurrency_is_bounded
from autograder.checks.loss import no_message_is_lost
from autograder.checks.settlement import failed_work_is_not_acked
from autograder.checks.shutdown import shutdown_drains_in_flight, stop_means_no_new_work
from autograder.checks.signals import (
    deadline_is_kept,
    exit_code_tells,
    idle_shutdown_is_prompt,
    second_signal_is_faster,
    sigint_equals_sigterm,
)

__all__ = [
    "ack_follows_work",
    "backpressure_holds",
    "buffered_messages_are_returned",
    "concurrency_is_bounded",
    "connection_closed_cleanly",
    "deadline_is_kept",
    "exit_code_tells",
    "failed_work_is_not_acked",
    "idle_shutdown_is_prompt",
    "no_message_is_lost",
    "second_signal_is_faster",
    "shutdown_drains_in_flight",
    "sigint_equals_sigterm",
    "stop_means_no_new_work",
]
