"""Random histories: correct ones accuse nobody, and each break is caught by its own check alone."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from autograder.checks import judge, keyed, pool
from autograder.model import BrokerState, Event, History, Kind, Status
from autograder.tests.checks.breaks import BREAKS, Break
from autograder.tests.checks.simulation import Plan, Sim

NINE = [getattr(pool, name) for name in pool.__all__]
ALL = [*NINE, *(getattr(keyed, name) for name in set(keyed.__all__) - set(pool.__all__))]
WAYS = ("transient", "error", "cancelled", "permanent")
BEGINNINGS = (
    ("publish", "begin"),
    ("publish_unconfirmed", "publish", "begin"),
    ("begin", "publish"),
)
MIDDLE = ("work", "work", "probe", "release_one", "cut")
AGAIN = (
    ("kill", "restart"),
    ("die_at_work", "restart"),
    ("stop", "restart"),
    ("cancel", "restart"),
)
ENDINGS = (
    ("finish", "stop"),
    ("finish",),
    ("stop",),
    ("kill",),
    ("stop_and_leave",),
    ("cancel",),
    ("finish", "source_ends"),
    ("late",),
    ("kill", "stop_first"),
    ("finish", "cancel"),
)


@st.composite
def correct_plans(draw: st.DrawFn) -> Plan:
    workers = draw(st.integers(1, 5))
    script = list(draw(st.sampled_from(BEGINNINGS)))
    for _ in range(draw(st.integers(0, 3))):
        script += draw(st.lists(st.sampled_from(MIDDLE), max_size=3))
        script += draw(st.sampled_from(((), *AGAIN)))
    script += draw(st.sampled_from(ENDINGS))
    return Plan(
        workers=workers,
        failures=draw(failure_lists(WAYS)),
        script=tuple(script),
        window=draw(st.integers(workers, 2 * workers + 2)),
        seed=draw(st.integers(0, 2**32)),
        counters=draw(st.booleans()),
        trouble=draw(st.sampled_from((0.0, 0.1))),
    )


def failure_lists(ways, *, least=0):
    one = st.lists(st.sampled_from(ways), max_size=2).map(tuple) if ways else st.just(())
    return st.lists(one, min_size=least, max_size=30).map(tuple)


@settings(max_examples=300, deadline=None)
@given(correct_plans())
def test_nothing_accuses_a_correct_history(plan):
    history = Sim(plan).run()
    accused = {
        name: verdict
        for name, verdict in judge(history, NINE).items()
        if verdict.status is Status.FAIL
    }
    assert not accused, "\n".join(map(str, history.events))


@settings(max_examples=50, deadline=None)
@example(
    Plan(  # one worker lost to a handler; settlements that failed do not speak for it
        workers=2,
        failures=(("transient",),),
        script=("publish_unconfirmed", "publish", "begin", "finish", "stop"),
        window=2,
        seed=0,
        counters=False,
        trouble=0.1,
    )
)
@given(correct_plans())
def test_a_pool_that_lost_a_slot_never_passes_even_if_it_gets_everything_done(plan):
    sim = Sim(replace(plan, slip="shrink"))
    history = sim.run()
    if sim.lost_slots:
        assert pool.one_failure_is_one_failure(history).status is not Status.PASS


@st.composite
def broken_histories(draw: st.DrawFn, wrong: Break) -> History:
    workers = draw(st.integers(wrong.fewest_workers, 4))
    window = wrong.window or (lambda n: 2 * n + 1)
    plan = Plan(
        workers=workers,
        failures=draw(failure_lists(wrong.ways, least=3 * workers)),
        script=draw(st.sampled_from(wrong.scripts)),
        window=window(workers),
        seed=draw(st.integers(0, 2**32)),
        slip="" if wrong.edit else wrong.slip,
    )
    sim = Sim(plan)
    history = sim.run()
    if wrong.edit is None:
        assume(sim.slipped)
        return history
    edited = wrong.edit(history, random.Random(plan.seed))  # noqa: S311 - a seeded edit, no secret
    assume(edited is not None)
    return edited


@pytest.mark.parametrize("wrong", BREAKS, ids=lambda wrong: wrong.slip.replace(" ", "-"))
def test_a_break_is_caught_by_its_own_check_and_by_no_other(wrong):
    @settings(
        max_examples=25,
        deadline=None,
        suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
    )
    @given(broken_histories(wrong))
    def holds(history):
        verdicts = judge(history, NINE)
        accusing = {name for name, verdict in verdicts.items() if verdict.status is Status.FAIL}
        story = "\n".join(map(str, history.events))
        assert wrong.own in accusing, f"{verdicts[wrong.own]}\n{story}"
        assert accusing <= {wrong.own, *wrong.also}, f"{accusing}\n{story}"
        own = verdicts[wrong.own]
        assert own.observed
        assert own.slip.endswith("?")
        assert 1 <= len(own.witness) <= 8
        places = [history.events.index(event) for event in own.witness]
        assert places == sorted(places)

    holds()


def test_every_guarantee_has_a_break_of_its_own():
    assert {wrong.own for wrong in BREAKS} == set(pool.__all__)


EVENTS = st.builds(
    Event,
    at=st.floats(allow_nan=True, allow_infinity=True),
    kind=st.sampled_from(sorted(Kind)),
    message=st.sampled_from(["", "a", "b", "c"]),
    key=st.sampled_from(["", "k", "l"]),
    delivery=st.integers(-1, 4),
    attempt=st.integers(-1, 2),
    process=st.integers(-1, 3),
    detail=st.one_of(
        st.sampled_from(
            [
                "", "kill", "cancel", "terminate", "pause", "resume", "stall", "heal", "permanent",
                "transient", "signal SIGKILL", "signal 15", "status 0", "stalled running=2 seen=1",
                "stalled running=2 seen=1 buffered=3 in_hand=1 busy=1 held=1", "drained settled=4",
                "blocked returned=x busy=", "late =", "ended returned", "met running=2 seen=2",
                "stalled finished=9 seen=1 buffered=3 in_hand=1 busy=1 held=1", "120 of 150 keys", "cut",
            ]
        ),
        st.text(max_size=12),
    ),
)  # fmt: skip


@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(EVENTS, max_size=40),
    st.integers(-1, 9),
    st.builds(BrokerState, st.integers(-2, 5), st.integers(-2, 5)),
    st.booleans(),
)
def test_no_history_whatever_makes_a_check_raise(events, workers, broker, truncated):
    history = History(tuple(events), workers, broker=broker, truncated=truncated)
    for verdict in (check(history) for check in ALL):
        assert verdict.observed
        assert len(verdict.witness) <= 8
        assert verdict.slip if verdict.status is Status.FAIL else not verdict.slip
