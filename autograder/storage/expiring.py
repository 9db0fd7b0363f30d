"""The port `Lease` in memory: keys that expire by a clock that the caller brings.

Imitated: every command of the port is one step; a key is gone at the instant its time is over; what is
asked for happens when the answer leaves, so whoever dies while waiting has or has not been heard. Not
imitated: a server that loses what it promised because it died before writing (Redis does not wait for
the disk, and a replica may lag), and clocks that disagree.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

Pause = Callable[[], Awaitable[None]]


class ExpiringStore:
    """What is stored; it outlives the processes that use it."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._keys: dict[str, tuple[str, float | None]] = {}  # value, and when it goes

    def get(self, key: str) -> str | None:
        """The value of a key that is there."""
        value, until = self._keys.get(key, (None, None))
        if until is not None and until <= self._now():
            del self._keys[key]
            return None
        return value

    def set(self, key: str, value: str, ttl_s: float | None) -> None:
        """Set it, with or without a life span."""
        self._keys[key] = value, None if ttl_s is None else self._now() + checked(ttl_s)

    def delete(self, key: str) -> bool:
        """Delete it; whether it was there."""
        there = self.get(key) is not None
        self._keys.pop(key, None)
        return there

    def left_s(self, key: str) -> float:
        """How many seconds a key has left; -1 if it stays, or is not there."""
        _, until = self._keys.get(key, (None, None))
        return -1.0 if until is None or self.get(key) is None else until - self._now()

    def __len__(self) -> int:
        return sum(self.get(key) is not None for key in list(self._keys))


def checked(ttl_s: float) -> float:
    """A life span. Raises `ValueError` for one that is none, as the adapter for Valkey does."""
    if ttl_s <= 0:
        raise ValueError(f"a life span is longer than {ttl_s} s")
    return ttl_s


class ExpiringLease:
    """One process's way to the store. `pause` is the time a command, or its answer, is on its way."""

    def __init__(self, store: ExpiringStore, pause: Pause) -> None:
        self._store = store
        self._pause = pause

    async def set_if_absent(self, key: str, value: str, *, ttl_s: float | None) -> bool:
        """Set a key that is not there."""
        await self._pause()
        absent = self._store.get(key) is None
        if absent:
            self._store.set(key, value, ttl_s)
        await self._pause()
        return absent

    async def delete_if_equals(self, key: str, value: str) -> bool:
        """Delete a key that still has this value."""
        await self._pause()
        equal = self._store.get(key) == value
        if equal:
            self._store.delete(key)
        await self._pause()
        return equal

    async def expire_if_equals(self, key: str, value: str, *, ttl_s: float) -> bool:
        """Give a key that still has this value a new life span."""
        await self._pause()
        equal = self._store.get(key) == value
        if equal:
            self._store.set(key, value, ttl_s)
        await self._pause()
        return equal

    async def get(self, key: str) -> str | None:
        """The value of a key."""
        await self._pause()
        value = self._store.get(key)
        await self._pause()
        return value

    async def set(self, key: str, value: str, *, ttl_s: float | None = None) -> None:
        """Set a key, whatever it was before."""
        await self._pause()
        self._store.set(key, value, ttl_s)
        await self._pause()

    async def expire(self, key: str, *, ttl_s: float) -> bool:
        """Give a key a new life span."""
        await self._pause()
        value = self._store.get(key)
        if value is not None:
            self._store.set(key, value, ttl_s)
        await self._pause()
        return value is not None

    async def delete(self, key: str) -> bool:
        """Delete a key."""
        await self._pause()
        there = self._store.delete(key)
        await self._pause()
        return there
