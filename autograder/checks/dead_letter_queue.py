"""The guarantees of the dead letter queue, in one place for its exercise to import."""

from __future__ import annotations

from autograder.checks.attempts import attempts_are_exact
from autograder.checks.dead_letters import (
    dead_letters_are_confirmed_first,
    healthy_messages_flow,
    permanent_goes_straight_to_dlq,
)
from autograder.checks.letter_story import dead_letter_tells_its_story
from autograder.checks.loss import no_message_is_lost
from autograder.checks.replay import replay_is_bounded, replay_publishes_first
from autograder.checks.replayed import replay_keeps_the_message
from autograder.checks.shutdown import shutdown_drains_in_flight, stop_means_no_new_work

__all__ = [
    "attempts_are_exact",
    "dead_letter_tells_its_story",
    "dead_letters_are_confirmed_first",
    "healthy_messages_flow",
    "no_message_is_lost",
    "permanent_goes_straight_to_dlq",
    "replay_is_bounded",
    "replay_keeps_the_message",
    "replay_publishes_first",
    "shutdown_drains_in_flight",
    "stop_means_no_new_work",
]
