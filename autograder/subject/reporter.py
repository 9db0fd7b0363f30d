"""The subject's end of the socket: every event leaves the process before its effect does."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from typing import Any

from autograder.model import Kind
from autograder.subject import wire

EXIT_CONTROL_LOST = 71  # the control socket was closed under us

# What may wait until the loop's turn is over. Nothing outside the process has noticed it by then:
# a settlement is reported first and leaves the process only in a later turn.
_MAY_WAIT = frozenset(
    {Kind.TAKEN, Kind.STARTED, Kind.FINISHED, Kind.SETTLED, Kind.ACK, Kind.REQUEUE, Kind.GIVE_UP}
    | {Kind.RAISED}
)


class Reporter:
    """Sends events to the examiner, in order, ahead of what they cause.

    An event is in the kernel's buffer before the broker hears of anything that follows from it. So
    if the process is killed at any instruction, the examiner knows at least as much as the
    broker. Events that only this process can know of so far wait for the end of the loop's turn: a
    system call for each would cost a busy pool a good part of its speed.
    """

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._breaks: dict[Kind, int] = {}
        self._unsent: list[bytes] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    def use_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        """From now on there is a loop whose turns end."""
        self._loop = loop

    def event(
        self,
        kind: Kind,
        message: str = "",
        key: str = "",
        delivery: int = 0,
        attempt: int = 0,
        detail: str = "",
    ) -> None:
        """Report one event; stand still afterwards if the examiner asked for it."""
        line = wire.encode_event(kind, message, key, delivery, attempt, detail)
        if self._loop is not None and kind in _MAY_WAIT:
            if not self._unsent:
                self._loop.call_soon(self.flush)
            self._unsent.append(line)
        else:
            self._unsent.append(line)
            self.flush()
        if self._breaks:
            self._maybe_break(kind)

    async def all_sent(self) -> None:
        """Return when everything reported so far has left: at the latest in the loop's next turn."""
        if self._unsent:
            await asyncio.sleep(0)  # `flush` was scheduled before us, so it runs before we go on

    def line(self, line: list[Any]) -> None:
        """Send one line that is no event, behind those that wait."""
        self._unsent.append(wire.encode(line))
        self.flush()

    def flush(self) -> None:
        """Send what waits. A channel that is gone ends the process: unwatched work counts for nothing."""
        if not self._unsent:
            return
        data = b"".join(self._unsent)
        self._unsent.clear()
        try:
            self._channel.sendall(data)
        except OSError:
            os._exit(EXIT_CONTROL_LOST)

    def break_at(self, kind: Kind, count: int) -> None:
        """Stand still right after the `count`-th event of this kind from now on."""
        self._breaks[kind] = count

    def _maybe_break(self, kind: Kind) -> None:
        if kind not in self._breaks:
            return
        self._breaks[kind] -= 1
        if self._breaks[kind] == 0:
            del self._breaks[kind]
            self._stand_still(kind)

    def _stand_still(self, kind: Kind) -> None:
        self.line([Kind.BREAK, "", "", 0, 0, kind])
        os.kill(os.getpid(), signal.SIGSTOP)
