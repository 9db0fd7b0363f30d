"""Slips that several checks have a question for."""

from __future__ import annotations

import re

from autograder.model import Event, Kind, unwritten

MY_OWN = "Does a line of your own raise each time, and an `except` give the message back?"

_IN_FUNCTION = re.compile(r"^ *File .*, in (\w+)", re.MULTILINE)


def settled_again(story: tuple[Event, ...]) -> str:
    """Of a delivery that was settled twice: what made the code settle it again."""
    if any(event.kind is Kind.SETTLE_FAILED for event in story):
        return (
            "Does an `except Exception` around ack() catch its SettleFailed, and settle again? Leave ack() "
            "out of the `try`, or let SettleFailed pass."
        )
    return "Can one message reach two of your calls of ack() and nack(), say in `except` and `finally`?"


def not_written(event: Event) -> str:
    """Of an exception that left the function; empty for one of written code."""
    if not unwritten(event):
        return ""
    functions = _IN_FUNCTION.findall(event.detail)
    return f"Is `{functions[-1]}` not written yet?" if functions else ""
