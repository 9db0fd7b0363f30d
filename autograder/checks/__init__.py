"""Guarantees: pure functions from a history to a verdict.

A check is decorated with `guarantee`; its docstring's first line is the sentence a student reads.
Importing this package registers all of them. Nothing here knows a broker.
"""

from __future__ import annotations

from autograder.checks import dead_letter_queue, effects, graceful, keyed, leases, pool
from autograder.checks.registry import catalogue, find, guarantee, judge

__all__ = [
    "catalogue",
    "dead_letter_queue",
    "effects",
    "find",
    "graceful",
    "guarantee",
    "judge",
    "keyed",
    "leases",
    "pool",
]
