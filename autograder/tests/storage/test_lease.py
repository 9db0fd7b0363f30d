"""Leases in Valkey and in memory keep one contract."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from autograder.brokers.process import free_ports
from autograder.storage import StoreGone
from autograder.storage.expiring import ExpiringLease, ExpiringStore
from autograder.storage.valkey import Connection, Refused, ValkeyLease, open_valkey
from autograder.tests.storage.lease_contract import LeaseContract


async def turn():
    await asyncio.sleep(0)


class TestExpiring(LeaseContract):
    @pytest.fixture
    async def lease(self):
        return ExpiringLease(ExpiringStore(asyncio.get_running_loop().time), turn)


class TestExpiringInVirtualTime(LeaseContract):
    in_virtual_time = True

    @pytest.fixture
    async def lease(self):
        store = ExpiringStore(asyncio.get_running_loop().time)
        return ExpiringLease(store, lambda: asyncio.sleep(0.0005))


@pytest.mark.valkey
class TestValkey(LeaseContract):
    @pytest.fixture
    async def lease(self, bench):
        async with open_valkey(bench.server("valkey").url, prefix=f"{uuid.uuid4()}:") as lease:
            yield lease

    async def test_a_connection_that_breaks_is_said_and_made_anew(self, bench):
        url = bench.server("valkey").url
        connection, killer = Connection(url), Connection(url)
        lease = ValkeyLease(connection, f"{uuid.uuid4()}:")
        await lease.set("k", "v")
        await killer.call("CLIENT", "KILL", "ID", str(await connection.call("CLIENT", "ID")))
        killer.close()
        with pytest.raises(StoreGone):
            await lease.get("k")
        assert await lease.get("k") == "v"
        connection.close()

    async def test_prefixes_keep_keys_apart(self, bench, lease):
        await lease.set("k", "mine")
        async with open_valkey(bench.server("valkey").url, prefix=f"{uuid.uuid4()}:") as other:
            assert await other.get("k") is None

    async def test_what_the_server_refuses_is_quoted(self, bench):
        url = bench.server("valkey").url.replace("redis://:", "redis://:wrong")
        with pytest.raises(Refused, match="WRONGPASS"):
            async with open_valkey(url):
                pass


async def test_nobody_at_the_address():
    with pytest.raises(StoreGone):
        async with open_valkey(f"redis://127.0.0.1:{free_ports(1)[0]}"):
            pass


def test_a_store_counts_what_is_there():
    now = [0.0]
    store = ExpiringStore(lambda: now[0])
    store.set("a", "x", 1.0)
    store.set("b", "x", None)
    assert len(store) == 2
    now[0] = 1.0
    assert len(store) == 1
