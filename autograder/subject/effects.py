"""The effect of a payment: one row of a table, written in the student's transaction.

The host writes it, because the work is the grader's; the student decides what it belongs together
with. The examiner reads it, because what a subject says of its effects proves nothing.
"""

from __future__ import annotations

import json

from autograder.messaging import Message
from autograder.storage import Transaction

EFFECTS = "payments"
"""The table. It has no key, so that a payment which is booked twice is there twice."""

READ = f"SELECT payment_id AS id, 'amount ' || amount AS detail FROM {EFFECTS}"  # noqa: S608 - ours
WRITE = (
    f"INSERT INTO {EFFECTS} (payment_id, customer, amount) "  # noqa: S608 - the same
    "VALUES (:payment_id, :customer, :amount)"
)


def amount_of(body: bytes) -> int:
    """The amount that a message's body names; 0 for a body of any other form."""
    try:
        return int(json.loads(body)["amount"])
    except (ValueError, TypeError, KeyError):
        return 0


async def write(message: Message, tx: Transaction) -> None:
    """Book a payment, in a transaction that somebody else commits."""
    await tx.execute(
        WRITE, payment_id=message.id, customer=message.key, amount=amount_of(message.body)
    )
