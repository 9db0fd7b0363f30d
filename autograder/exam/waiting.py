"""Waiting for a condition, and telling the reasons why it does not come to hold.

A stop-watch alone cannot tell a slow machine from a pool that stands still, and accusing the one
of the other is the worst mistake a grader makes. So the subject's host sends heartbeats: each one
proves that the student's event loop turned once more, and says what lies within its reach. A pool
*stands* only after dozens of turns in which messages lay ready, no handler was at work, and
nothing moved.

Conditions, all of which must hold: `taken`, `started`, `finished`, `settled`, `given_up`,
`dead_lettered`, `republishing`, `republished` (at least so many distinct messages), `failed`, `requeued`,
`cancelled`, `publish_failed`, `lease_waits`, `lease_refused`, `lease_taken` (at least so many events),
`running` (exactly so many handlers now), `reconnected` (times since the last cut), `connecting` (at its
gate), `returned`, `exited`, `at_break` (true).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from autograder.exam.scenario import ScenarioOver
from autograder.model import GraderError, Kind, Wait
from autograder.subject.tally import FLAGS

if TYPE_CHECKING:
    from autograder.exam.recorder import Life
    from autograder.exam.run import Run

STILL_BEATS = 40  # heartbeats (0.05 s each when the machine is idle) without any movement
STILL_S = 2.0  # and at least this long
DRAINED_BEATS = 20  # heartbeats of stillness before the broker is asked whether anything is left
SILENT_S = 6.0  # no heartbeat for so long: the event loop is blocked
LAG_S = 0.5  # the examiner itself was held up for so long: its clock proves nothing


async def wait_until(
    run: Run, conditions: Mapping[str, int | bool], *, timeout_s: float, within_s: float
) -> None:
    """Return when all conditions hold, else record why not and raise `ScenarioOver`.

    `timeout_s` counts from the last movement, `within_s` from now. Raises `GraderError` for a condition there is not.
    """
    check_names(run, conditions)
    started = time.monotonic()
    patience = _Patience(started)
    while True:
        if run.recorder.holds(conditions):
            run.recorder.note(Kind.EXPECTED, detail_of(run, Wait.MET, conditions))
            return
        why = await _why_not(run, conditions, patience, timeout_s)
        if why is None and time.monotonic() - started > within_s:
            why = Wait.LATE
        if why is not None:
            run.recorder.note(Kind.EXPECTED, detail_of(run, why, conditions))
            raise ScenarioOver(detail_of(run, why, conditions))
        with patience:
            await run.changed(within_s=0.1)


async def wait_for_answer(run: Run, answer: Awaitable[None]) -> None:
    """Wait until the subject has carried out an order.

    Orders are read by the event loop. If that stands still, an `EXPECTED` event says so and
    `ScenarioOver` ends the scenario.
    """
    waiting = asyncio.ensure_future(answer)
    patience = _Patience(time.monotonic())
    try:
        while not waiting.done():
            if _is_silent(run, patience) and not run.paused:
                detail = detail_of(run, Wait.BLOCKED, {"answered": 1})
                run.recorder.note(Kind.EXPECTED, detail)
                raise ScenarioOver(detail)
            with patience:
                await asyncio.wait({waiting}, timeout=0.1)
        waiting.result()
    finally:
        waiting.cancel()


async def wait_for_life(
    run: Run, reached: Callable[[Life], bool], life: Life | None = None
) -> None:
    """Return when the subject's newest process, or that of this life, has got so far, or never will.

    A loop that stands still is waited for no longer than it takes to know it: what the scenario
    waits for next will say so.
    """
    life = life or run.recorder.life
    patience = _Patience(time.monotonic())
    while not (reached(life) or life.returned or life.exited.is_set() or run.paused):
        if _is_silent(run, patience):
            return
        with patience:
            await run.changed(within_s=0.1)


class _Patience:
    """Since when the examiner has been watching without being held up itself: `with` it, wait."""

    def __init__(self, since: float) -> None:
        self.since = since
        self.asked_at_beat = 0
        self._before = since

    def __enter__(self) -> None:
        self._before = time.monotonic()

    def __exit__(self, *_: object) -> None:
        now = time.monotonic()
        if now - self._before > LAG_S:
            self.since = now


def _is_silent(run: Run, patience: _Patience) -> bool:
    """Whether the subject's event loop has not turned for seconds."""
    last = max(run.recorder.beat.at, run.recorder.moved_at, patience.since)
    return time.monotonic() - last > SILENT_S


def check_names(run: Run, conditions: Mapping[str, int | bool]) -> None:
    """Raise `GraderError` for a condition there is not."""
    for name in conditions:
        if name not in FLAGS:
            try:
                run.count(name)
            except KeyError:
                raise GraderError(f"until() knows no condition called {name!r}.") from None


async def _why_not(
    run: Run, conditions: Mapping[str, int | bool], patience: _Patience, timeout_s: float
) -> Wait | None:
    """The reason to give up, or None to go on waiting."""
    recorder = run.recorder
    life, beat, now = recorder.life, recorder.beat, time.monotonic()
    if recorder.are_over(wanted="exited" in conditions):
        return Wait.ENDED
    if recorder.is_storm:
        return Wait.STORM
    since = max(recorder.moved_at, patience.since)
    if run.paused:
        return Wait.LATE if now - since > timeout_s else None
    if _is_silent(run, patience):
        return Wait.BLOCKED
    connecting = "connecting" in conditions or (life.connecting and not life.connected)
    if connecting or not life.called:  # the machine's time, and the broker's
        return Wait.LATE if now - since > timeout_s else None
    idle = beat.busy == beat.held and not beat.settling
    if "exited" in conditions and life.told and "returned" not in conditions:
        # it has a deadline of its own to keep: only time tells that it does not
        if now - since <= timeout_s:
            return None
        return Wait.STALLED if idle and beat.still >= STILL_BEATS else Wait.LATE
    within_reach = beat.buffered or beat.in_hand or "returned" in conditions
    if "reconnected" in conditions:  # the adapter's work, and ours: nobody else stands still
        within_reach = False
    if idle and within_reach and beat.still >= STILL_BEATS and now - since > STILL_S:
        return Wait.STALLED
    ending = "returned" in conditions or "exited" in conditions  # a pool may take its second
    if idle and not beat.in_hand and not ending and await _drained(run, patience):
        return Wait.DRAINED
    if now - since > timeout_s:
        return Wait.LATE
    return None


async def _drained(run: Run, patience: _Patience) -> bool:
    """Whether the broker has nothing left for a subject that holds nothing: no more can come."""
    beat = run.recorder.beat
    if beat.buffered or beat.still < DRAINED_BEATS or beat.still < patience.asked_at_beat:
        return False
    patience.asked_at_beat = beat.still + DRAINED_BEATS
    moved_at = run.recorder.moved_at
    state = await run.broker_state()
    nothing_left = (
        state.waiting <= 0 and state.unsettled <= 0 and (state.waiting, state.unsettled) != (-1, -1)
    )
    return nothing_left and run.recorder.moved_at == moved_at


def detail_of(run: Run, why: Wait, conditions: Mapping[str, int | bool]) -> str:
    """`stalled running=4 seen=1 buffered=36 in_hand=1 busy=1 held=1`, one condition after the other."""
    words = [str(why)]
    for name, wanted in conditions.items():
        words += [f"{name}={int(wanted)}", f"seen={run.recorder.value(name)}"]
    beat = run.recorder.beat
    words += [f"buffered={beat.buffered}", f"in_hand={beat.in_hand}"]
    return " ".join([*words, f"busy={beat.busy}", f"held={beat.held}"])
