"""What lessons stand on: a database, a ledger, the figures of a run, pictures for both palettes."""

from __future__ import annotations

import asyncio
import importlib
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("IPython", reason="the site's tools are the group `docs`")

from autograder.brokers import acquire
from autograder.model import Event, History, Kind
from autograder.report import svg
from autograder.storage import DatabaseError

LESSONS = Path(__file__).parents[3] / "lessons"


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    monkeypatch.syspath_prepend(str(LESSONS))


@pytest.fixture
def shown(monkeypatch):
    pictures = importlib.import_module("lessonkit.pictures")
    made = []
    monkeypatch.setattr(pictures, "display", lambda what, **_: made.append(what))
    return made


async def test_a_database_serves_so_many_at_a_time_and_then_has_no_more_patience():
    kit = importlib.import_module("lessonkit.database")
    database = kit.Database(connections=2, query_s=3600, patience_s=0.01)
    served = [asyncio.create_task(database.query()) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(kit.PoolTimeout, match=r"no connection within 0.01 s"):
        await database.query()
    for each in served:
        each.cancel()
    await asyncio.gather(*served, return_exceptions=True)
    database.query_s = 0
    await database.query()  # connections come back however a query ends


@pytest.fixture
def ledger_server(monkeypatch):
    with acquire("postgres") as server:
        kit = importlib.import_module("lessonkit.ledger")
        monkeypatch.setattr(kit, "store", lambda: server)
        yield kit


@pytest.mark.postgres
async def test_a_ledger_tells_every_balance_there_was(ledger_server):
    ledger = await ledger_server.open_ledger("anna", "boris")
    try:
        for account, what, amount in (
            ("anna", "purchase", -8_000),
            ("boris", "deposit", 5),
            ("anna", "deposit", 10_000),
        ):
            await booked(ledger, account, what, amount)
        assert (await ledger.statement("anna")).splitlines() == [
            "booked        amount     balance",
            "purchase      -8,000      -8,000",
            "deposit      +10,000       2,000",
        ]
        assert await ledger.balances("anna") == [-8_000, 2_000]
        assert await ledger.below_zero() == 1  # account, though it ended well
        await ledger.open("anna", rule="check (balance >= 0)")
        assert await ledger.balances("anna") == []
        with pytest.raises(DatabaseError, match="check constraint"):
            await booked(ledger, "anna", "purchase", -1)
        assert await ledger.below_zero() == 0
    finally:
        await ledger.close()


async def booked(ledger, account, what, amount):
    async with ledger.transaction() as tx:
        row = await tx.fetch_one(
            "update accounts set balance = balance + :amount where id = :id returning balance",
            id=account, amount=amount,
        )  # fmt: skip
        await tx.execute(
            "insert into bookings (account, what, amount, balance)"
            " values (:account, :what, :amount, :balance)",
            account=account, what=what, amount=amount, **row,
        )  # fmt: skip


def test_an_order_is_published_under_its_account():
    kit = importlib.import_module("lessonkit.observing")
    sent = kit._outgoing(7, kit.Order("anna", "deposit", 10_000, takes_ms=400))
    assert (sent.id, sent.key) == ("anna-deposit", "anna")
    assert json.loads(sent.body) == {"what": "deposit", "amount": 10_000, "takes_ms": 400}
    plain = kit._outgoing(7, b"invoice")
    assert (plain.id, plain.key, plain.body) == ("order-0007", "", b"invoice")


async def test_what_was_given_back_is_not_done():
    kit = importlib.import_module("lessonkit.observing")
    watch = kit._Watch(None, 1, recording=True)
    watch.samples = [(0.0, 1, 1)]
    for kind in (Kind.TAKEN, Kind.STARTED, Kind.FAILED, Kind.REQUEUE, Kind.SETTLED):
        watch._notes.event(kind, "anna-deposit", "anna", 1, 1)
    assert not watch._over()
    for kind in (Kind.TAKEN, Kind.STARTED, Kind.FINISHED, Kind.ACK, Kind.SETTLED):
        watch._notes.event(kind, "anna-deposit", "anna", 2, 2)
    assert watch._over()


@pytest.mark.parametrize(
    ("stores", "also"),
    [
        ({}, ""),
        (
            {"PostgreSQL": SimpleNamespace(version="16.14", provider="embedded")},
            ", PostgreSQL 16.14 (embedded)",
        ),
    ],
)
def test_a_page_names_the_stores_it_was_executed_with(monkeypatch, stores, also):
    kit = importlib.import_module("lessonkit.stamp")
    told = {}
    monkeypatch.setattr(kit, "facts", told.update)
    monkeypatch.setattr(kit, "server", lambda: SimpleNamespace(version="2.15.1", provider="warm"))
    monkeypatch.setattr(kit, "stores_in_use", lambda: stores)
    kit.show()
    assert told["broker"] == f"NATS 2.15.1 (warm){also}"


def history(*kinds):
    events = [
        Event(at * 0.5, kind, message=name, delivery=int(name))
        for at, (kind, name) in enumerate(kinds)
    ]
    return History(tuple(events), workers=2)


RUN = history(
    (Kind.TAKEN, "1"), (Kind.TAKEN, "2"), (Kind.STARTED, "1"), (Kind.FINISHED, "1"),
    (Kind.STARTED, "2"), (Kind.ACK, "1"), (Kind.SETTLED, "1"), (Kind.FAILED, "2"), (Kind.TAKEN, "3"),
)  # fmt: skip


def test_a_run_in_numbers():
    kit = importlib.import_module("lessonkit.observation")
    seen = kit.Observation(
        RUN, published=5, seconds=4, samples=(), memory_bytes=0, unheard=0, returned=True,
        errors=kit.Counter(Oops=1),
    )  # fmt: skip
    assert (seen.finished, seen.failed, seen.most_in_hand, seen.most_at_work) == (1, 1, 2, 1)
    assert seen.per_second == pytest.approx(2.0)
    assert str(seen).splitlines() == [
        "finished  1 order, 2 a second",
        "failed    1 order (Oops 1)",
        "at work   1 handler at most",
        "in hand   2 orders at most",
        "settled   1 of 5 orders",
    ]


def test_a_timeline_has_words_and_reaches_to_the_end(shown):
    kit = importlib.import_module("lessonkit.pictures")
    kit.timeline(RUN, ["2"], caption="The second fails & stays.")
    (figure,) = shown
    assert "<title" in figure.data
    assert "<desc" in figure.data
    assert "The second fails &amp; stays." in figure.data
    assert figure.data.count("<svg") == 2  # wide and narrow
    assert ">taken</tspan> 3" in figure.data  # the run's last event
    assert 'class="band"' not in figure.data


@pytest.mark.parametrize(("keys", "said"), [(["anna", "anna"], False), (["anna", "boris"], True)])
def test_a_timeline_names_keys_where_there_are_several(shown, keys, said):
    kit = importlib.import_module("lessonkit.pictures")
    names = [f"{key}-{number}" for number, key in enumerate((*keys, keys[0]))]
    events = tuple(
        Event(at * 0.1, Kind.TAKEN, message=name, key=key, delivery=at + 1)
        for at, (name, key) in enumerate(zip(names, (*keys, keys[0]), strict=True))
    )
    kit.timeline(History(events, workers=3), names, caption="Three orders.")
    (figure,) = shown
    assert ("key anna" in figure.data) is said


def test_a_plot_wears_the_colours_of_the_page(shown):
    pytest.importorskip("matplotlib")
    kit = importlib.import_module("lessonkit.pictures")
    with kit.plot(title="Rates", caption="What & why.", alt="It rises to <30>.") as axes:
        axes.plot([1, 2], [3, 4], color=svg.LIGHT.work)
        axes.set(xlabel="workers")
    (figure,) = shown
    assert "var(--tl-work)" in figure.data
    assert "var(--tl-text)" in figure.data
    assert svg.LIGHT.work not in figure.data
    assert "It rises to &lt;30&gt;." in figure.data
    assert 'role="img"' in figure.data
    assert ">workers</text>" in figure.data  # text stays text


def test_facts_are_given_and_not_shown(shown):
    kit = importlib.import_module("lessonkit.pictures")
    kit.facts(rate="19", orders=10_000)
    assert shown == [{kit.FACTS: {"rate": "19", "orders": "10,000"}}]


def test_a_crash_runs_the_cells_own_functions_as_a_module():
    kit = importlib.import_module("lessonkit.crash")
    text = kit._module(pool, (helps,))
    compiled = compile(text, "consumer.py", "exec")
    space = {}
    exec(compiled, space)  # noqa: S102 - our own text
    assert "await pool(source, handle, workers=workers)" in text
    assert asyncio.iscoroutinefunction(space["main"])


async def helps():
    pass


async def pool(source, handle, workers):
    await helps()
