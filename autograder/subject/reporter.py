"""The subject's end of the socket: every event leaves the process before its effect does."""

from __future__ import annotations

import os
import signal
import socket
from typing import Any

from autograder.model import Kind
from autograder.subject import wire

EXIT_CONTROL_LOST = 71  # the control socket was closed under us


class Reporter:
    """Sends events to the examiner, synchronously.

    An event is in the kernel's buffer when `event` returns. So whatever the broker is told
    afterwards, the examiner hears of the cause even if this process is killed the moment after.
    """

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._breaks: dict[Kind, int] = {}

    def event(
        self,
        kind: Kind,
        *,
        message: str = "",
        key: str = "",
        delivery: int = 0,
        attempt: int = 0,
        detail: str = "",
    ) -> None:
        """Report one event; stand still afterwards if the examiner asked for it."""
        self.line([kind, message, key, delivery, attempt, detail])
        if self._breaks:
            self._maybe_break(kind)

    def line(self, line: list[Any]) -> None:
        """Send one line. A channel that is gone ends the process: unwatched work counts for nothing."""
        try:
            self._channel.sendall(wire.encode(line))
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
            self.line([Kind.BREAK, "", "", 0, 0, kind])
            os.kill(os.getpid(), signal.SIGSTOP)
