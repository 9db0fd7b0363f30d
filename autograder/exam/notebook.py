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

    note_now = Recorder.note  # what the world itself tells

    def note(self, kind: Kind, detail: str = "", *, life: Life | None = None, **about: str) -> None:
        """Record it once all orders so far are carried out; `about` is a message and its key."""
        noting = partial(self.note_now, kind, detail, life=life or self.life, **about)
        if self._queue:
            self._queue[-1].notes.append(noting)
        else:
            noting()
