"""Orders for an account, as Lavka publishes them: the account is the message's key."""

from __future__ import annotations

import json
from dataclasses import dataclass


@dataclass(frozen=True)
class Order:
    """One order: money in (`amount` above 0) or out, and how long its handler will be at it.

    `name` is the message's id, which pictures show. The body says the same in JSON.
    """

    account: str
    what: str
    amount: int
    takes_ms: int = 0

    @property
    def name(self) -> str:
        """The account and what is to be done, `anna-deposit`."""
        return f"{self.account}-{self.what}"

    @property
    def body(self) -> bytes:
        """What the message carries."""
        return json.dumps(
            {"what": self.what, "amount": self.amount, "takes_ms": self.takes_ms}
        ).encode()
