"""What the port `Lease` promises, as tests. Each implementation inherits them."""

from __future__ import annotations

import asyncio

import pytest

from autograder.storage import Lease

SHORT_S, LONG_S = 0.05, 60.0
PATIENCE_S = 20.0


class LeaseContract:
    """What holds everywhere. A fixture `lease` has no keys."""

    async def gone(self, lease, key):
        """Return when a key has expired."""
        async with asyncio.timeout(PATIENCE_S):
            while await lease.get(key) is not None:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.005)

    async def test_it_is_what_the_port_says(self, lease):
        assert isinstance(lease, Lease)

    async def test_the_first_has_it_and_no_other(self, lease):
        assert await lease.set_if_absent("k", "mine", ttl_s=LONG_S)
        assert not await lease.set_if_absent("k", "yours", ttl_s=LONG_S)
        assert await lease.get("k") == "mine"
        assert await lease.set_if_absent("other", "yours", ttl_s=LONG_S)

    async def test_of_many_at_once_one_has_it(self, lease):
        claims = [lease.set_if_absent("k", str(number), ttl_s=LONG_S) for number in range(50)]
        won = await asyncio.gather(*claims)
        assert sum(won) == 1
        assert await lease.get("k") == str(won.index(True))

    async def test_it_expires_and_can_be_had_again(self, lease):
        assert await lease.set_if_absent("k", "mine", ttl_s=SHORT_S)
        await self.gone(lease, "k")
        assert await lease.set_if_absent("k", "yours", ttl_s=LONG_S)

    async def test_only_its_owner_gives_it_back(self, lease):
        await lease.set_if_absent("k", "mine", ttl_s=LONG_S)
        assert not await lease.delete_if_equals("k", "yours")
        assert await lease.get("k") == "mine"
        assert await lease.delete_if_equals("k", "mine")
        assert await lease.get("k") is None
        assert not await lease.delete_if_equals("k", "mine")

    async def test_only_its_owner_prolongs_it(self, lease):
        await lease.set_if_absent("k", "mine", ttl_s=LONG_S)
        assert not await lease.expire_if_equals("k", "yours", ttl_s=SHORT_S)
        assert await lease.expire_if_equals("k", "mine", ttl_s=SHORT_S)
        await self.gone(lease, "k")
        assert not await lease.expire_if_equals("k", "mine", ttl_s=LONG_S)

    async def test_without_a_life_span_it_stays_until_it_gets_one(self, lease):
        assert await lease.set_if_absent("k", "mine", ttl_s=None)
        assert await lease.expire("k", ttl_s=SHORT_S)
        await self.gone(lease, "k")
        assert not await lease.expire("k", ttl_s=LONG_S)

    async def test_set_overwrites_whatever_was_there_its_life_span_too(self, lease):
        await lease.set_if_absent("k", "mine", ttl_s=SHORT_S)
        await lease.set("k", "yours")
        await lease.set_if_absent("short", "x", ttl_s=SHORT_S)
        await self.gone(lease, "short")
        assert await lease.get("k") == "yours"
        await lease.set("k", "done", ttl_s=SHORT_S)
        await self.gone(lease, "k")

    async def test_delete_asks_nobody(self, lease):
        await lease.set_if_absent("k", "mine", ttl_s=LONG_S)
        assert await lease.delete("k")
        assert not await lease.delete("k")

    @pytest.mark.parametrize("text", ["", "a b\r\n", "ключ", "*", "x" * 5000])
    async def test_any_text_is_a_key_and_a_value(self, lease, text):
        await lease.set(text, text)
        assert await lease.get(text) == text

    @pytest.mark.parametrize("ttl_s", [0, -1.0])
    async def test_no_life_span_is_none(self, lease, ttl_s):
        with pytest.raises(ValueError, match="life span"):
            await lease.set_if_absent("k", "mine", ttl_s=ttl_s)
        assert await lease.get("k") is None

    async def test_whoever_is_cancelled_leaves_it_usable(self, lease):
        tasks = [asyncio.create_task(lease.set(f"k{number}", "v")) for number in range(5)]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await lease.set("k", "v")
        assert await lease.get("k") == "v"
        assert await lease.get("k1") == "v"
