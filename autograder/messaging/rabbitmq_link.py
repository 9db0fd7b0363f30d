"""pika for coroutines: questions are awaited, no thread is started and nothing is polled.

pika's `AsyncioConnection` lives in the event loop and answers by callbacks; it must only be used
from there (https://pika.readthedocs.io/en/stable/faq.html). A callback that never comes would be
awaited for ever, so every question ends with its channel as well: whichever is first.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import pika
from pika.adapters.asyncio_connection import AsyncioConnection, _AsyncioIOServicesAdapter
from pika.exceptions import AMQPError, ChannelWrongStateError, ConnectionWrongStateError
from pika.spec import Basic

if TYPE_CHECKING:
    from pika.channel import Channel

T = TypeVar("T")

logging.getLogger("pika").setLevel(logging.CRITICAL)  # every error of its log is raised as well


class Line:
    """One channel, and those who wait for its answers."""

    def __init__(self, on_end: Callable[[], None] | None = None) -> None:
        self.channel: Channel  # set by `opened`, before anybody has the line
        self.ended = False
        self.reason = ""  # why it ended
        self._on_end = on_end
        self._answers: set[asyncio.Future[Any]] = set()

    def opened(self, channel: Channel) -> None:
        """Take over a channel that is open."""
        self.channel = channel
        channel.add_on_close_callback(lambda _channel, error: self.end(_told(error)))

    async def ask(self, question: Callable[..., object], *arguments: Any, **options: Any) -> Any:
        """The answer to a method of the channel that takes `callback=`. Raises `ConnectionError`."""
        answer = asyncio.get_running_loop().create_future()
        self.say(question, *arguments, callback=partial(answered, answer), **options)
        return await self.awaited(answer)

    async def awaited(self, answer: asyncio.Future[T]) -> T:
        """Await what a callback will set, or the end of the channel, which is a `ConnectionError`."""
        if self.ended:
            raise ConnectionResetError(self.reason)
        self._answers.add(answer)
        try:
            return await answer
        finally:
            self._answers.discard(answer)

    def say(self, method: Callable[..., object], *arguments: Any, **options: Any) -> None:
        """Call a method of the channel. Raises `ConnectionError` once the channel is closed."""
        if self.ended:
            raise ConnectionResetError(self.reason)
        try:
            method(*arguments, **options)
        except (ChannelWrongStateError, ConnectionWrongStateError) as error:
            raise ConnectionResetError("the channel is being closed") from error

    def end(self, reason: str) -> None:
        """Nobody will answer any more."""
        if self.ended:
            return
        self.ended, self.reason = True, reason
        for answer in self._answers:
            if not answer.done():
                answer.set_exception(ConnectionResetError(reason))
        if self._on_end is not None:
            self._on_end()


class Publisher:
    """Publishes to queues on a channel of its own, and knows what the broker has confirmed."""

    def __init__(self, line: Line) -> None:
        self.line = line
        self._last = 0  # the broker counts what is published on the channel, from 1
        self._unconfirmed: dict[int, tuple[str, asyncio.Future[None]]] = {}  # in order
        self._returned: set[str] = set()  # queues that were not there

    async def open(self) -> None:
        """Have the broker confirm (https://www.rabbitmq.com/docs/confirms)."""
        channel = self.line.channel
        channel.add_on_return_callback(lambda _channel, returned, *_: self._on_return(returned))
        channel.add_on_close_callback(lambda *_: self._on_end())
        await self.line.ask(channel.confirm_delivery, self._on_confirm)

    def publish(
        self,
        queue: str,
        body: bytes,
        properties: pika.BasicProperties | None = None,
        *,
        exchange: str = "",
    ) -> asyncio.Future[None]:
        """Publish; the future ends when the queue has it, or with `ConnectionError`.

        A message that no queue takes is returned before it is confirmed: that, too, is an error.
        """
        confirmed = asyncio.get_running_loop().create_future()
        say = self.line.channel.basic_publish
        self.line.say(say, exchange, queue, body, properties, mandatory=True)
        self._last += 1
        self._unconfirmed[self._last] = queue, confirmed
        return confirmed

    def _on_confirm(self, answer: Any) -> None:
        said = answer.method
        refused = isinstance(said, Basic.Nack)
        tags = [said.delivery_tag]
        if said.multiple:
            tags = list(itertools.takewhile(said.delivery_tag.__ge__, self._unconfirmed))
        for tag in tags:
            queue, confirmed = self._unconfirmed.pop(tag)
            if confirmed.done():
                continue
            if refused or queue in self._returned:
                why = "refuses messages" if refused else "has no such queue"
                confirmed.set_exception(ConnectionRefusedError(f"the broker {why}: {queue}"))
            else:
                confirmed.set_result(None)

    def _on_return(self, returned: Any) -> None:
        self._returned.add(returned.routing_key)

    def _on_end(self) -> None:
        for _, confirmed in self._unconfirmed.values():
            if not confirmed.done():
                confirmed.set_exception(ConnectionResetError("the broker did not confirm"))
        self._unconfirmed.clear()


class Connection:
    """One connection, from its handshake to its end. It never reconnects: a new one is made."""

    def __init__(self, url: str, *, heartbeat_s: int) -> None:
        self._parameters = pika.URLParameters(url)
        # a function, because of two figures pika would take the larger one
        self._parameters.heartbeat = lambda _connection, _servers: heartbeat_s
        self._parameters.connection_attempts = 1
        self._services: _Services | None = None
        self._connection: _Gathering | None = None
        self._gone: asyncio.Future[None] | None = None

    @property
    def server(self) -> dict[str, Any]:
        """What the server says of itself."""
        properties = self._connection.server_properties if self._connection else None
        return dict(properties or {})

    async def open(self) -> None:
        """Connect and log in. Raises `ConnectionError` with the reason if that fails."""
        loop = asyncio.get_running_loop()
        opened, self._gone = loop.create_future(), loop.create_future()
        self._services = _Services(loop)
        self._connection = _Gathering(
            self._parameters,
            on_open_callback=partial(answered, opened),
            on_open_error_callback=lambda _connection, error: self._failed(opened, error),
            on_close_callback=lambda _connection, _error: answered(self._gone, None),
            custom_ioloop=self._services,
        )
        try:
            await opened
        except asyncio.CancelledError:
            if not self._connection.is_closed:
                self._connection.close()
            raise

    def _failed(self, opened: asyncio.Future[Any], error: BaseException | str) -> None:
        answered(self._gone, None)
        at = f"{self._parameters.host}:{self._parameters.port}"
        if not opened.done():
            opened.set_exception(
                ConnectionError(f"no RabbitMQ server answers at {at}: {_told(error)}")
            )

    async def line(self, on_end: Callable[[], None] | None = None) -> Line:
        """A new channel. `on_end` is called once, when it is closed by whomever."""
        if self._connection is None or not self._connection.is_open:
            raise ConnectionResetError("the connection was lost")
        line = Line(on_end)
        opening = asyncio.get_running_loop().create_future()
        channel = self._connection.channel(on_open_callback=partial(answered, opening))
        line.opened(channel)
        await line.awaited(opening)
        return line

    async def close(self, timeout_s: float) -> None:
        """Leave in good order; after `timeout_s` without an answer, hang up."""
        if self._connection is None or self._gone is None:
            return
        with suppress(AMQPError):
            if self._connection.is_open:
                self._connection.close()
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.shield(self._gone)
        except TimeoutError:
            self.hang_up()
            with suppress(TimeoutError):
                async with asyncio.timeout(1):  # a turn or two of the loop
                    await asyncio.shield(self._gone)

    def hang_up(self) -> None:
        """Close the socket from this side without a word; pika notices as if the peer had."""
        sock = self._services.socket if self._services else None
        if sock is not None:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)


class _Gathering(AsyncioConnection):  # type: ignore[misc]  # pika tells no types
    """Writes once a turn of the loop.

    pika writes each frame by itself, and half of what an acknowledgement costs is that system call.
    """

    _gathered: list[bytes]

    def _adapter_emit_data(self, data: bytes) -> None:
        if not self._gathered:
            self.ioloop.call_soon(self._emit_gathered)
        self._gathered.append(data)

    def _emit_gathered(self) -> None:
        data, self._gathered = b"".join(self._gathered), []
        if self._transport is not None:  # else it was lost in this very turn
            super()._adapter_emit_data(data)

    def _init_connection_state(self) -> None:
        self._gathered = []
        super()._init_connection_state()


class _Services(_AsyncioIOServicesAdapter):  # type: ignore[misc]  # pika tells no types
    """pika's own way into the event loop, with the socket at hand and no thread for addresses.

    The loop's `getaddrinfo` runs in a thread, even where the address is given in figures.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self.socket: socket.socket | None = None

    def getaddrinfo(
        self, host: str, port: int, on_done: Callable[[Any], None], **wanted: int
    ) -> object:
        async def resolve() -> Any:
            how = {("type" if name == "socktype" else name): it for name, it in wanted.items()}
            try:
                figures = {**how, "flags": how.get("flags", 0) | socket.AI_NUMERICHOST}
                return socket.getaddrinfo(host, port, **figures)
            except socket.gaierror:
                return await asyncio.get_running_loop().getaddrinfo(host, port, **how)

        return self._schedule_and_wrap_in_io_ref(resolve(), on_done)

    def connect_socket(
        self, sock: socket.socket, resolved_addr: object, on_done: Callable[[Any], None]
    ) -> object:
        self.socket = sock
        return super().connect_socket(sock, resolved_addr, on_done)


def answered(answer: asyncio.Future[Any] | None, value: Any = None, *_: Any) -> None:
    """Set a result, unless whoever waits for it has given up: a callback for pika."""
    if answer is not None and not answer.done():
        answer.set_result(value)


def _told(error: object) -> str:
    """An error of pika's as words: its innermost reason."""
    while True:
        inner = getattr(error, "exceptions", None) or getattr(error, "args", None)
        if inner and isinstance(inner[-1], BaseException):
            error = inner[-1]
        elif nested := getattr(error, "exception", None):
            error = nested
        else:
            return getattr(error, "reply_text", "") or str(error) or type(error).__name__
