"""How a run begins: which function is called, and with what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autograder.exam.orders import Order
from autograder.exam.stores import STORES
from autograder.model import Call, GraderError

PROVIDED = frozenset({"connect", "source", "handle", "stop", "dead_letters", "publish", *STORES})
"""What the host gives a function; everything else that it is given is an option of the run."""


@dataclass(frozen=True)
class Setup:
    """How a run begins: what is called, with what, over which kind of network."""

    call: Call
    options: Mapping[str, Any]
    prefetch: int = 256
    proxy: bool = False
    stop_first: bool = False
    hold_connect: bool = False
    bears: Sequence[str] = ()
    letters: tuple[Order, ...] = ()

    @property
    def told(self) -> str:
        """`run max_attempts=3`: what is called, for the history. Nothing where it is called as a pool is."""
        if self.call == Call(self.call.function):
            return ""
        said = (f"{name}={value}" for name, value in self.options.items())
        return " ".join([self.call.function, *said])

    @property
    def dead_letters(self) -> bool:
        """Whether the function is given dead letters."""
        return "dead_letters" in self.call.names

    @property
    def publishes(self) -> bool:
        """Whether the function is given a way to publish."""
        return "publish" in self.call.names

    @property
    def has_effects(self) -> bool:
        """Whether what the work has done lies in a database."""
        return "db" in self.call.names

    @property
    def has_leases(self) -> bool:
        """Whether the function is given leases."""
        return "lease" in self.call.names

    def check(self) -> None:
        """Raise `GraderError` unless the options are those that the function takes."""
        wanted = set(self.call.names) - PROVIDED
        if wanted != set(self.options):
            told = ", ".join(sorted(wanted)) or "no options"
            raise GraderError(f"{self.call} takes {told}, not {', '.join(self.options) or 'none'}.")
