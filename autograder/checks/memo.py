"""Remembering what was worked out about a history, while one check after the other asks about it."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from autograder.model import History

_Params = ParamSpec("_Params")
_Answer = TypeVar("_Answer")


class _Latest:
    """What is known about one history, the latest; it is not kept alive for that."""

    def __init__(self, history: History | None = None) -> None:
        self.history = weakref.ref(history) if history is not None else lambda: None
        self.answers: dict[Hashable, Any] = {}


_STATE = {"latest": _Latest()}


def remembered(
    function: Callable[Concatenate[History, _Params], _Answer],
) -> Callable[Concatenate[History, _Params], _Answer]:
    """Compute each answer once per history, for the history asked about last.

    A history is a value, so an answer never changes; callers must not change it either. Two
    threads that judge different histories only lose the benefit.
    """

    @wraps(function)
    def answer(history: History, /, *args: _Params.args, **kwargs: _Params.kwargs) -> _Answer:
        latest = _STATE["latest"]
        if latest.history() is not history:
            latest = _STATE["latest"] = _Latest(history)
        key = (function, args, tuple(kwargs.items()))
        if key not in latest.answers:
            latest.answers[key] = function(history, *args, **kwargs)
        found: _Answer = latest.answers[key]
        return found

    return answer
