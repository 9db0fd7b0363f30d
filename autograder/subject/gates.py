"""Gates: handlers, and commands on a lease, wait at them until the examiner says otherwise."""

from __future__ import annotations

import asyncio
from typing import Any

from autograder.messaging import Message
from autograder.messaging.route import Posted

HANDLER, TAKE, RELEASE = POINTS = "handler", "take", "release"
"""Where there are gates: before the work, before a lease is taken, before it is released."""


class Gates:
    """Which messages wait, and until when. A later rule wins over an earlier one."""

    def __init__(self) -> None:
        self._rules: list[tuple[bool, dict[str, Any]]] = []  # hold or not, and what
        self._opened = asyncio.Event()

    def rule(self, match: dict[str, Any], *, hold: bool) -> None:
        """From now on hold, or let through, what matches; whoever waits looks again."""
        if not match:
            self._rules.clear()
        if hold or match:
            if "ids" in match:
                match = {"ids": set(match["ids"])}
            self._rules.append((hold, match))
        self._opened.set()
        self._opened = asyncio.Event()

    def closed_for(self, message: Message | Posted) -> bool:
        """Whether this message has to wait now."""
        hold: bool
        for hold, match in reversed(self._rules):
            if "ids" in match and message.id not in match["ids"]:
                continue
            if "key" in match and message.key != match["key"]:
                continue
            return hold
        return False

    async def wait_open(self, message: Message | Posted) -> None:
        """Return when the gate is open for this message."""
        while self.closed_for(message):
            await self._opened.wait()
