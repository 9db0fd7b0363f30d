"""Grades written by hand, one for each thing a report must be able to say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from autograder.model import (
    BrokerState,
    Event,
    Exercise,
    Grade,
    History,
    Kind,
    Problem,
    Result,
    Verdict,
    failed,
    inconclusive,
    passed,
)

ROOT = Path("/course")
PATH = "03_concurrency/01_worker_pool"
POINTS = {
    "no_message_is_lost": 3,
    "ack_follows_work": 3,
    "failed_work_is_not_acked": 2,
    "concurrency_is_bounded": 2,
    "pool_is_used": 2,
    "backpressure_holds": 2,
    "one_failure_is_one_failure": 2,
    "stop_means_no_new_work": 2,
    "shutdown_drains_in_flight": 2,
}
SENTENCES = {
    "no_message_is_lost": "Every message the broker confirmed is processed at least once.",
    "ack_follows_work": "A message is acknowledged only after its work is done.",
    "failed_work_is_not_acked": "A message whose work failed is given back, never acknowledged.",
    "concurrency_is_bounded": "There are never more handlers at work than workers.",
    "pool_is_used": "All workers are busy as long as there is work.",
    "backpressure_holds": "The pool takes no more than it can hold: memory stays flat.",
    "one_failure_is_one_failure": "A failing message costs one message, not a worker.",
    "stop_means_no_new_work": "After stop nothing more is taken.",
    "shutdown_drains_in_flight": "What was in hand at stop is finished or given back.",
}

EXERCISE = Exercise(
    path=PATH,
    title="Worker pool",
    kind="port",
    module="worker_pool",
    function="run",
    engines=("nats", "kafka"),
    timeout_s=30.0,
    points=POINTS,
    folder=ROOT / "exercises" / PATH,
    solution_folder=ROOT / "solutions" / PATH,
)


def of(at: float, kind: Kind, number: int = 0, **rest) -> Event:
    """One event; with a number, of that delivery of the message with the same number."""
    if number:
        rest = {"message": f"order-{number:04d}", "key": f"k{number % 4}", "attempt": 1, **rest}
    return Event(at, kind, delivery=number, process=rest.pop("process", 1), **rest)


def correct(at: float, number: int, lasts: float = 0.05) -> list[Event]:
    """The events of one delivery that goes well."""
    return [
        of(at, Kind.TAKEN, number),
        of(at + 0.0004, Kind.STARTED, number),
        of(at + lasts, Kind.FINISHED, number),
        of(at + lasts + 0.0003, Kind.ACK, number),
        of(at + lasts + 0.0011, Kind.SETTLED, number),
    ]


def ack_first() -> tuple[History, Verdict]:
    """A crash after an early acknowledgement: the message is gone."""
    events = [of(0.0, Kind.SPAWNED), of(0.02, Kind.RUN_STARTED)]
    for number in range(1, 17):
        events += correct(0.03 + 0.013 * number, number)
    early = [
        of(4.812, Kind.TAKEN, 17),
        of(4.8122, Kind.ACK, 17),
        of(4.8127, Kind.SETTLED, 17),
        of(4.8131, Kind.STARTED, 17),
        of(4.8155, Kind.FAULT, detail="kill"),
        of(4.8171, Kind.EXITED, detail="signal 9"),
    ]
    beside = [
        of(4.790, Kind.TAKEN, 16),
        of(4.7904, Kind.STARTED, 16),
        of(4.8129, Kind.FINISHED, 16),
        of(4.8133, Kind.ACK, 16),
        of(4.8149, Kind.SETTLED, 16),
    ]
    events = [e for e in events if e.delivery != 16] + sorted([*early, *beside], key=lambda e: e.at)
    events.append(of(5.1, Kind.SPAWNED, process=2))
    events.append(of(9.2, Kind.EXPECTED, detail="drained settled=40 seen=39 buffered=0 in_hand=0"))
    history = History(
        tuple(sorted(events, key=lambda e: e.at)),
        workers=4,
        exercise=PATH,
        test="test_crash_between_work_and_ack",
        engine="nats",
        seed=2,
        broker=BrokerState(waiting=0, unsettled=0, settled=40, redelivered=3),
    )
    verdict = failed(
        "1 of 40 messages was acknowledged before its work was done, and the crash that came next "
        "lost it: order-0017.",
        [early[0], early[1], early[3], early[4]],
        "Is the ack sent before the work is done?",
    )
    return history, verdict


def too_many() -> tuple[History, Verdict]:
    """A task per message: eight handlers where four are allowed."""
    events = [of(0.02, Kind.RUN_STARTED, detail="")]
    for number in range(1, 9):
        events += correct(0.1 + 0.001 * number, number, lasts=0.2)
    events.sort(key=lambda e: e.at)
    history = History(tuple(events), workers=4, test="test_bounded", engine="nats", seed=1)
    started = history.of(Kind.STARTED)
    verdict = failed(
        "8 handlers were at work at the same time (at 0.108 s), 4 are allowed.",
        started,
        "Does every message get a task of its own?",
    )
    return history, verdict


def standing() -> tuple[History, Verdict]:
    """A pool of one where four are asked for: the examiner waits in vain."""
    taken = of(1.0, Kind.TAKEN, 1)
    started = of(1.001, Kind.STARTED, 1)
    held = of(1.0012, Kind.HELD, 1)
    waited = of(
        3.41,
        Kind.EXPECTED,
        detail="stalled running=4 seen=1 buffered=36 in_hand=1 busy=1 held=1",
    )
    history = History((taken, started, held, waited), workers=4, test="test_all_busy", seed=1)
    return history, failed(
        "Only 1 of 4 workers was busy while 36 messages waited.",
        [started, held, waited],
        "Does the loop wait for one handler before it takes the next message?",
    )


def raised() -> tuple[History, Verdict]:
    """The whole pool falls with one message."""
    detail = (
        "ValueError: no such warehouse\n"
        "Traceback (most recent call last):\n"
        '  File "worker_pool.py", line 31, in run\n'
        "    async with asyncio.TaskGroup() as group:\n"
        '  File "worker_pool.py", line 24, in work\n'
        "    await handle(message)\n"
        "ValueError: no such warehouse"
    )
    events = (
        of(0.5, Kind.TAKEN, 3),
        of(0.501, Kind.STARTED, 3),
        of(0.52, Kind.FAILED, 3, detail="error"),
        of(0.5210, Kind.CANCELLED, 4, message="order-0004"),
        of(0.5301, Kind.RUN_RAISED, detail=detail),
    )
    return History(events, workers=4, test="test_poison", seed=3), failed(
        "run() raised ValueError because one message failed; 39 messages were left.",
        events[2:],
        "Is there a try around the call of the handler?",
    )


def result(name: str, verdict: Verdict, history: History | None = None) -> Result:
    """One guarantee's result."""
    return Result(
        name,
        SENTENCES[name],
        POINTS[name],
        verdict,
        histories=12,
        test=history.test if history else "",
        seed=history.seed if history else 0,
        history=history,
    )


def grade(*results: Result, **changes) -> Grade:
    """A grade of these results on embedded NATS."""
    base = Grade(
        exercise=EXERCISE,
        submission=EXERCISE.skeleton,
        submission_sha256="c0ffee" + "0" * 58,
        engine="nats",
        provider="embedded",
        broker_version="2.15.1",
        isolation="landlock",
        seeds=(1, 2, 3),
        results=results,
        duration_s=12.34,
        started_at="2026-11-29T10:00:00Z",
        versions={"python": "3.11.7", "ackademy": "0.1.0", "nats-py": "2.16.0"},
    )
    return replace(base, **changes)


def all_pass() -> Grade:
    return grade(*(result(name, passed("40 of 40 messages")) for name in POINTS))


def mixed() -> Grade:
    """Three failures, one verdict missing, the rest fine."""
    crash, lost = ack_first()
    flood, bounded = too_many()
    pool, used = standing()
    poison, one = raised()
    verdicts = {
        "ack_follows_work": (lost, crash),
        "concurrency_is_bounded": (bounded, flood),
        "pool_is_used": (used, pool),
        "one_failure_is_one_failure": (one, poison),
        "backpressure_holds": (inconclusive("Time ran out while the broker was slow."), None),
    }
    results = [
        result(name, *verdicts.get(name, (passed(), None)))  # one line each
        for name in POINTS
    ]
    return grade(
        *results,
        output="starting 4 workers\n" + "".join(f"took order-{n:04d}\n" for n in range(40)),
        notices=("RabbitMQ is not on this machine: graded on NATS only.",),
    )


def broken() -> Grade:
    """A submission that does not even parse."""
    sentence = "Your file is not valid Python: line 12 has an unclosed bracket."
    verdict = failed(sentence, [Event(0.1, Kind.BROKEN, detail=f"syntax: {sentence}")])
    return grade(
        *(result(name, verdict) for name in POINTS),
        problem=Problem(
            "syntax",
            sentence,
            '  File "worker_pool.py", line 12\n    await handle(message\n'
            "                ^\nSyntaxError: '(' was never closed",
        ),
    )


def interrupted() -> Grade:
    """Ctrl-C after three guarantees."""
    names = list(POINTS)[:3]
    return grade(*(result(name, passed()) for name in names), complete=False)


def undecided() -> Grade:
    verdict = inconclusive(
        "12 messages were still waiting when time ran out.",
        [of(10.0, Kind.EXPECTED, detail="late settled=40 seen=28 buffered=0 in_hand=4")],
    )
    return grade(result("no_message_is_lost", verdict))


HOSTILE = (
    "</script><script>alert(1)</script> [red]rich[/red] [/] \x1b[2J\x1b[31m \x1b]0;owned\x07 "
    "\u202eevil\u2066 \x00 \r\b \ud800 \u2028 \ufeff {{ 7*7 }} &amp; ' \" ]]> 日本語 кл\u0301юч 🎉"
)


def hostile() -> Grade:
    """Everything a student can influence is out to do harm."""
    key = Event(0.5, Kind.TAKEN, HOSTILE, HOSTILE, 1, 2, 1, HOSTILE)
    events = (
        key,
        replace(key, kind=Kind.STARTED, at=0.6),
        replace(key, kind=Kind.FAULT, at=0.7, delivery=0),
        Event(0.8, Kind.RUN_RAISED, process=1, detail=f"{HOSTILE}\n{HOSTILE}\n{HOSTILE * 30}"),
        Event(0.9, Kind.EXPECTED, detail=HOSTILE),
    )
    verdict = failed(HOSTILE, events, HOSTILE)
    history = History(events, workers=1, test=HOSTILE, seed=1)
    bad = Result(HOSTILE, HOSTILE, 1, verdict, 1, HOSTILE, 1, history)
    return grade(
        bad,
        replace(bad, guarantee="other"),
        exercise=replace(EXERCISE, title=HOSTILE, points={HOSTILE: 1, "other": 1}),
        submission=Path("/elsewhere") / HOSTILE.replace("\x00", "").replace("/", ""),
        broker_version=HOSTILE,
        output=HOSTILE * 10 + "x" * 1_000_000 + "\n" + HOSTILE,
        notices=(HOSTILE,),
        versions={HOSTILE: HOSTILE},
    )
