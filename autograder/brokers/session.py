"""A server for as long as a block of code runs."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import TracebackType

from autograder.brokers import providers, records
from autograder.brokers.process import CalledOffError, Patience
from autograder.brokers.providers import Provider
from autograder.brokers.server import Server


class Session:
    """What `acquire` returns: a context manager, both kinds, for one use.

    Entering it yields a `Server` that answers; leaving it stops what was started, also on Ctrl-C
    and on cancellation, in the middle of the start too. On Linux a server dies with the thread that
    started it (PR_SET_PDEATHSIG, prctl(2)): the asynchronous form has a thread of its own for as
    long as the block runs, the plain form must be left by the thread that entered it.
    """

    def __init__(self, engine: str, provider: str | None = None) -> None:
        self._engine = engine
        self._name = provider
        self._provider: Provider | None = None
        self._server: Server | None = None
        self._patience = Patience()
        self._thread: ThreadPoolExecutor | None = None

    def __enter__(self) -> Server:
        cleaned = records.discard_orphans()
        self._provider = providers.choose(self._engine, self._name)
        server = self._provider.open(self._patience)
        self._server = replace(server, notices=(*server.notices, *records.told(cleaned)))
        return self._server

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._provider is not None and self._server is not None:
            with _interrupts_deferred():
                self._provider.close(self._server)
                self._server = None

    async def __aenter__(self) -> Server:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"{self._engine}-server")
        starting = asyncio.get_running_loop().run_in_executor(self._thread, self.__enter__)
        try:
            return await asyncio.shield(starting)
        except BaseException:
            self._patience.call_off()
            await self._leave()
            with contextlib.suppress(CalledOffError, Exception):
                starting.result()
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._leave()

    async def _leave(self) -> None:
        """Stop the server in its thread, whatever happens to us meanwhile."""
        assert self._thread is not None  # noqa: S101 - only called after __aenter__
        leaving = asyncio.get_running_loop().run_in_executor(
            self._thread, self.__exit__, None, None, None
        )
        cancelled = False
        while not leaving.done():
            try:
                await asyncio.shield(leaving)
            except asyncio.CancelledError:
                cancelled = True  # a second Ctrl-C does not leave a server behind
        self._thread.shutdown(wait=False)
        leaving.result()
        if cancelled:
            raise asyncio.CancelledError


@contextlib.contextmanager
def _interrupts_deferred() -> Iterator[None]:
    """Let a Ctrl-C wait for the end of the block, which takes a moment, and then have its way."""
    previous = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or previous is None:
        yield  # signals do not interrupt this thread, or a handler is set that is not Python's
        return
    arrived = []
    signal.signal(signal.SIGINT, lambda number, _frame: arrived.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
        for number in arrived[:1]:
            signal.raise_signal(number)


def acquire(engine: str, provider: str | None = None) -> Session:
    """A ready server of `engine`, for a `with` or an `async with` block.

    Without `provider` the first in the order of `providers.TABLE` that has one. Servers left by
    graders that are gone are cleaned up first.

    Raises (on entering)
    --------------------
    UsageError
        There is no such engine or provider.
    MissingError
        None is to be had here; says of every provider why not.
    GraderError
        There should be one, but it does not start or does not answer.
    """
    return Session(engine, provider)
