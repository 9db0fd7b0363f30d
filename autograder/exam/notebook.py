"""The recorder of a simulated run, whose orders travel together."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial

from autograder.exam.recorder import Life, Recorder
from autograder.exam.simulated_child import Asked
from autograder.model import Kind


class Notebook(Recorder):
    """A recorder that knows of orders on their way: what is noted meanwhile happens after them."""

    def __init__(self, clock: Callable[[], float], queue: deque[Asked]) -> None:
        super().__init__(clock)
        self._queue = queue

    def note(
        self,
        kind: Kind,
        detail: str = "",
        *,
        message: str = "",
        key: str = "",
        life: Life | None = None,
    ) -> None:
        """Record it once all orders so far are carried out."""
        life = life or self.life
        noting = partial(self.note_now, kind, detail, message=message, key=key, life=life)
        if self._queue:
            self._queue[-1].notes.append(noting)
        else:
            noting()

    def note_now(
        self,
        kind: Kind,
        detail: str = "",
        *,
        message: str = "",
        key: str = "",
        life: Life | None = None,
    ) -> None:
        """Record what the world itself tells."""
        super().note(kind, detail, message=message, key=key, life=life)
