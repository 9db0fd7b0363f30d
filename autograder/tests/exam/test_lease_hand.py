"""The examiner's hand on leases, in the part of another consumer: the same on a real server and without."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest

from autograder.exam.stores import Stores
from autograder.model import Call
from autograder.sim.clock import Clock
from autograder.sim.stores import SimStores
from autograder.storage.valkey import open_valkey

CALL = Call("charge", ("lease",), ())
KEY = "charge:m1"


class Real:
    def __init__(self, run):
        self._run = run

    async def hand(self, do):
        await self._run.at_lease(do, KEY, "other")

    async def look(self):
        return await self._run.at_lease("look", KEY, "other")

    @asynccontextmanager
    async def student(self):
        url, prefix = self._run.job["lease"]
        async with open_valkey(url, prefix=prefix) as lease:
            yield lease


class Simulated:
    def __init__(self):
        self._stores = SimStores({"tables": ""}, Clock(), _AtOnce(), lambda what: None)

    async def hand(self, do):
        self._stores.at_lease(do, KEY, "other")

    async def look(self):
        return self._stores.lease_now(KEY)

    @asynccontextmanager
    async def student(self):
        yield self._stores.lease()


class _AtOnce:
    def store(self):
        return 0.0


@pytest.fixture(params=["sim", pytest.param("valkey", marks=pytest.mark.valkey)])
async def stage(request, bench):
    if request.param == "sim":
        yield Simulated()
        return
    run = Stores({"valkey": bench.server("valkey")}).open(CALL)
    await run.prepare()
    yield Real(run)
    await run.drop()


async def test_a_look_tells_the_value_and_what_is_left(stage):
    assert await stage.look() == ("", -1.0)
    async with stage.student() as lease:
        assert await lease.set_if_absent(KEY, "mine", ttl_s=60)
        value, left_s = await stage.look()
        assert value == "mine"
        assert 30 < left_s <= 60
        await lease.set(KEY, "mine")
        assert await stage.look() == ("mine", -1.0)


async def test_another_takes_it_whoever_holds_it(stage):
    async with stage.student() as lease:
        assert await lease.set_if_absent(KEY, "mine", ttl_s=60)
        await stage.hand("take")
        assert await stage.look() == ("other", -1.0)
        assert not await lease.delete_if_equals(KEY, "mine")
        await stage.hand("free")
        assert await stage.look() == ("", -1.0)


async def test_its_time_is_over_if_it_has_one(stage):
    async with stage.student() as lease:
        assert await lease.set_if_absent(KEY, "mine", ttl_s=60)
        await stage.hand("end")
        assert await lease.get(KEY) is None
        await lease.set(KEY, "mine")
        await stage.hand("end")
        assert await lease.get(KEY) == "mine"
