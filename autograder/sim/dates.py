"""Dates and times of day in virtual time: what `datetime.now()` and its like say in a world.

A world begins at the same moment on every machine, and it has one time zone, UTC: a history that
tells of times is the same byte for byte wherever and whenever its seed is tried again.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

Seconds = Callable[[], float]

_DATETIME, _DATE = dt.datetime, dt.date  # the real ones, whatever takes their place later


def virtual(seconds: Seconds) -> Iterator[tuple[Any, str, Any]]:
    """What takes the place of what, in the modules `datetime` and `time`.

    `seconds` says how many have passed since 1970, as `time.time()` does.
    """
    for real, stand_in in (_DATETIME, _Datetime), (_DATE, _Date):
        named = {"seconds": staticmethod(seconds), "real": real, "__module__": "datetime"}
        yield dt, real.__name__, _StandsIn(real.__name__, (stand_in,), named)
    for name, of in ("gmtime", time.gmtime), ("localtime", time.gmtime), ("ctime", time.ctime):
        yield time, name, _at_present(of, seconds)
    yield time, "strftime", _in_words(time.strftime, 1, seconds)
    yield time, "asctime", _in_words(time.asctime, 0, seconds)


def _at_present(of: Callable[[float], Any], seconds: Seconds) -> Callable[..., Any]:
    """A function of the module `time` whose moment is the present one if none is given."""

    def at(moment: float | None = None) -> Any:
        return of(seconds() if moment is None else moment)

    return at


def _in_words(words: Callable[..., str], before: int, seconds: Seconds) -> Callable[..., str]:
    """A function whose last argument, after `before` others, is the present if it is not given."""
    gmtime = time.gmtime

    def in_words(*given: Any) -> str:
        return words(*given) if len(given) > before else words(*given, gmtime(seconds()))

    return in_words


class _StandsIn(type):
    """Of the class that takes another's place, all instances of that one are."""

    real: type
    seconds: Seconds

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.real)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, cls.real)


class _Datetime(dt.datetime, metaclass=_StandsIn):
    """What it makes are real ones: nobody who is given one is surprised."""

    seconds: ClassVar[Seconds]

    def __new__(cls, *args: Any, **options: Any) -> Any:
        return _DATETIME(*args, **options)

    @classmethod
    def now(cls, tz: dt.tzinfo | None = None) -> Any:
        found = _DATETIME.fromtimestamp(cls.seconds(), dt.UTC)
        return found.replace(tzinfo=None) if tz is None else found.astimezone(tz)

    @classmethod
    def utcnow(cls) -> Any:
        return cls.now()

    @classmethod
    def today(cls) -> Any:
        return cls.now()


class _Date(dt.date, metaclass=_StandsIn):
    seconds: ClassVar[Seconds]

    def __new__(cls, *args: Any, **options: Any) -> Any:
        return _DATE(*args, **options)

    @classmethod
    def today(cls) -> Any:
        return _DATETIME.fromtimestamp(cls.seconds(), dt.UTC).date()
