"""The messages of a scenario: orders of the Lavka marketplace, with the work they ask for."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from autograder.exam.engines import Outgoing
from autograder.subject.work import Work


@dataclass(frozen=True, slots=True)
class Order:
    """One message of a scenario. Its id is a nonce: nobody knows it who did not receive it."""

    id: str
    key: str
    work: Work = field(default_factory=Work)
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def outgoing(self) -> Outgoing:
        """The order as it is published."""
        return Outgoing(id=self.id, key=self.key, body=self.body, headers=self.headers)


Match = Order | Sequence[Order] | None
"""What a gate is about: an order, some, or all there are."""


def altered(order: Order, randomness: random.Random) -> Order:
    """The same id and key, and another amount."""
    told = json.loads(order.body)
    told["amount"] += randomness.randrange(1, 10_000)
    return replace(order, body=json.dumps(told).encode())


def make_orders(
    count: int,
    *,
    first: int,
    keys: int,
    work: Work,
    randomness: random.Random,
    nonce: Callable[[], str],
) -> list[Order]:
    """`count` orders over `keys` customers (0: the empty key), payloads from `randomness`."""
    orders, told = [], asdict(work)
    for number in range(first, first + count):
        name = f"order-{number:04d}-{nonce()}"
        key = f"customer-{randomness.randrange(keys)}" if keys else ""
        body = {"order": name, "amount": randomness.randrange(1, 10_000), "work": told}
        orders.append(Order(name, key, work, json.dumps(body).encode()))
    return orders


def gate_rule(match: Match, key: str | None) -> dict[str, Any]:
    """What a gate is about, as the host reads it."""
    if key is not None:
        return {"key": key}
    if match is None:
        return {}
    return {"ids": [each.id for each in ([match] if isinstance(match, Order) else match)]}


def match_text(match: Match, key: str | None) -> str:
    """The same, as a history tells it."""
    if key is not None:
        return f"key {key!r}"
    if match is None:
        return "everything"
    return match.id if isinstance(match, Order) else f"{len(match)} messages"
