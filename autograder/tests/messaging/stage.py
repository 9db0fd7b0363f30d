"""One lane of one broker, with consumers that can be cut off, for the contract tests."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from urllib.parse import urlsplit

from autograder.exam.engines import Outgoing, open_engine
from autograder.exam.proxy import FaultProxy
from autograder.messaging.adapter import open_source
from autograder.messaging.memory import Broker

PATIENCE_S = 10.0
"""How long anything may take before a test says what is still missing."""

PROMPT_S = 3.0
"""What "at once" may take on a busy machine: far below `LEASE_S`, so that no lease can have run out."""

LEASE_S = 30.0


async def eventually(condition: Callable[[], bool | Awaitable[bool]], missing: Callable[[], str]):
    """Wait until the condition holds; fail with what is missing."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        held = condition()
        if not isinstance(held, bool):
            held = await held
        if held:
            return
        assert time.monotonic() < deadline, f"after {PATIENCE_S} s: {missing()}"
        await asyncio.sleep(0.01)


async def prompt(awaitable, seconds: float = PROMPT_S):
    """The result, if it comes at once."""
    async with asyncio.timeout(seconds):
        return await awaitable


class Stage:
    """A lane, its examiner's engine and its consumers."""

    def __init__(self, name: str, url: str) -> None:
        self.name = name
        self._url = url
        self._stack = AsyncExitStack()
        self._proxy: FaultProxy | None = None

    async def __aenter__(self):
        self.engine = Broker() if self.name == "memory" else await open_engine(self.name, self._url)
        self._stack.push_async_callback(self.engine.close)
        self.lane = await self.open_lane()
        return self

    async def __aexit__(self, *_):
        await self._stack.aclose()

    async def open_lane(self, **options):
        options = {"lease_s": LEASE_S} | options
        lane = await self.engine.open_lane("contract", **options)
        self._stack.push_async_callback(self.engine.drop_lane, lane)
        return lane

    async def connect(self, *, prefetch: int = 256, lane=None, cuttable: bool = False):
        """A source, closed with the stage if not before."""
        lane = lane or self.lane
        if cuttable and self.name != "memory":
            lane = await self.seen_through_proxy(lane)
        return await self._stack.enter_async_context(
            open_source(self.name, lane, prefetch=prefetch)
        )

    async def seen_through_proxy(self, lane):
        """The same lane, by way of a proxy that can cut it and hold it up."""
        return replace(lane, url=await self._through_proxy())

    async def _through_proxy(self) -> str:
        parts = urlsplit(self._url if "//" in self._url else f"//{self._url}")
        self._proxy = FaultProxy((parts.hostname, parts.port), kafka=self.name == "kafka")
        await self._proxy.start()
        self._stack.push_async_callback(self._proxy.close)
        self._stack.callback(self._proxy.heal)
        return f"{parts.scheme}://127.0.0.1:{self._proxy.port}".removeprefix("://")

    def cut(self) -> None:
        """Break the connections of sources that are `cuttable`."""
        if self.name == "memory":
            self.engine.cut(self.lane)
        else:
            self._proxy.cut()

    @property
    def proxy(self) -> FaultProxy:
        assert self._proxy is not None
        return self._proxy

    async def publish(
        self, count: int, *, keys: int = 0, prefix: str = "m", lane=None
    ) -> list[str]:
        """Messages `m0`, `m1`, ..., their keys in turn."""
        messages = [
            Outgoing(f"{prefix}{n}", f"key-{n % keys}" if keys else "", b"x" * 100)
            for n in range(count)
        ]
        return await self.engine.publish(lane or self.lane, messages)

    async def until_settled(self, count: int) -> None:
        """The broker's own counters say so."""
        state = await self.engine.state(self.lane)

        async def settled() -> bool:
            nonlocal state
            state = await self.engine.state(self.lane)
            return state.settled == count and state.waiting <= 0

        await eventually(settled, lambda: f"{count} settled, and nothing waiting: {state}")

    async def start_consumer(self, script: str, *arguments: str):
        """A real process that consumes from the lane. Killed with the stage if not before."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            script,
            self.name,
            self.lane.url,
            self.lane.channel,
            self.lane.consumer,
            str(self.lane.lease_s),
            *arguments,
            stdout=asyncio.subprocess.PIPE,
        )
        self._stack.push_async_callback(kill, process)
        return process


async def kill(process) -> None:
    """SIGKILL, and wait until it is gone."""
    if process.returncode is None:
        process.kill()
    await process.wait()


async def take(source, count: int) -> list:
    """This many messages, in the order they are handed out."""
    return [await prompt(anext(source), PATIENCE_S) for _ in range(count)]


async def take_and_ack(source, count: int) -> list:
    """The same, settled."""
    messages = await take(source, count)
    await asyncio.gather(*(message.ack() for message in messages))
    return messages
