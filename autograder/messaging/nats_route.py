"""A route on NATS JetStream: a stream of its own, and a durable pull consumer on it.

A publication is a request: the stream answers with the sequence it stored the message under
(https://docs.nats.io/nats-concepts/jetstream/streams). One that asks for no answer is lost without
a word when nobody listens. Reading asks for one message and does not wait (`no_wait`): an answer
with status 404 says that the consumer knows of none. A consumer learns of a message a moment after
the stream has confirmed it, so the stream has the last word.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from nats.aio.client import Client
from nats.errors import Error as NatsError

from autograder.messaging import SettleFailed
from autograder.messaging.adapter import Lane
from autograder.messaging.envelope import ID_HEADER, KEY_HEADER, as_header, from_header
from autograder.messaging.route import CONFIRM_S, Letter, Posted, Route, Settlement

if TYPE_CHECKING:
    from nats.aio.msg import Msg

_VERBS: dict[Settlement, bytes] = {"ack": b"+ACK", "requeue": b"-NAK", "give up": b"+TERM"}
_OURS = frozenset((ID_HEADER, KEY_HEADER))
_FOR_EVER_S = 1e6
_NO_WAIT = b'{"batch":1,"no_wait":true}'
_A_MOMENT = b'{"batch":1,"expires":500000000}'  # nanoseconds; below `CONFIRM_S`


class AdapterRoute(Route):
    """A connection of its own, made again when it is needed and gone."""

    def __init__(self, lane: Lane) -> None:
        super().__init__(lane)
        self._client: Client | None = None
        self._opening = asyncio.Lock()
        self._held: set[str] = set()  # letters in hand, by what they are settled with

    async def connect(self) -> None:
        """Connect."""
        await self._connected()

    async def _connected(self) -> Client:
        async with self._opening:
            if self._client is None or not self._client.is_connected:
                await self.hang_up()
                self._client = await _new_client(self.lane.url)
            return self._client

    async def close(self) -> None:
        """Hand back what is in hand: its lease would run on for long. Then disconnect."""
        with suppress(OSError):
            async with asyncio.timeout(CONFIRM_S):
                for reply in self._held:
                    await self._request(reply, _VERBS["requeue"])
        self._held.clear()
        await super().close()

    async def hang_up(self) -> None:
        """Disconnect."""
        client, self._client = self._client, None
        if client is not None:
            with suppress(NatsError, OSError):
                await client.close()

    async def send(self, posted: Posted) -> None:
        """Publish, and wait for the stream's answer."""
        headers = {name: as_header(value) for name, value in posted.headers.items()}
        headers[ID_HEADER] = as_header(posted.id)
        if posted.key:
            headers[KEY_HEADER] = as_header(posted.key)
        said = (await self._request(self.lane.channel, posted.body, headers)).data
        if b'"seq"' not in said:
            raise ConnectionRefusedError(f"the stream refuses messages: {said.decode()}")

    async def next_letter(self) -> Letter | None:
        """Ask for one message, and do not wait for one to come."""
        got = await self._ask(_NO_WAIT)
        if not got.reply and await self._undelivered():
            got = await self._ask(_A_MOMENT)
        sent = got.headers or {}
        if not got.reply:
            return None
        self._held.add(got.reply)
        headers = {name: from_header(it) for name, it in sent.items() if name not in _OURS}
        identity, key = (from_header(sent.get(name, "")) for name in (ID_HEADER, KEY_HEADER))
        posted = Posted(identity, key, got.data, headers)
        return Letter(posted, got.metadata.num_delivered, got.reply, self)

    async def settle(self, letter: Letter, how: Settlement) -> None:
        """Acknowledging is publishing, and asked to, the server says that it has it."""
        try:
            await self._request(str(letter.token), _VERBS[how])
        except OSError as error:
            raise SettleFailed(str(error)) from error
        self._held.discard(str(letter.token))

    async def count(self) -> int:
        """Messages that were not delivered, and those that were given back."""
        info = await self._info("CONSUMER", self.lane.channel, self.lane.consumer)
        returned: int = info.get("num_ack_pending", 0) - len(self._held)
        return max(0, await self._undelivered(info) + returned)

    async def _undelivered(self, consumer: dict[str, Any] | None = None) -> int:
        """How many the stream has beyond the last that was delivered: nobody deletes from it."""
        names = (self.lane.channel, self.lane.consumer)
        consumer = consumer or await self._info("CONSUMER", *names)
        stream = await self._info("STREAM", self.lane.channel)
        last: int = stream["state"]["last_seq"]
        delivered: int = consumer["delivered"]["stream_seq"]
        return last - delivered

    async def _info(self, what: str, *names: str) -> dict[str, Any]:
        said = (await self._request(f"$JS.API.{what}.INFO.{'.'.join(names)}", b"")).data
        info: dict[str, Any] = json.loads(said)
        if "error" in info:
            raise ConnectionError(f"the server refuses: {info['error'].get('description')}")
        return info

    async def _ask(self, request: bytes) -> Msg:
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self.lane.channel}.{self.lane.consumer}"
        # a message comes under the subject it was published to: by that no answer is recognised
        return await self._request(subject, request, own_inbox=True)

    async def _request(
        self,
        subject: str,
        payload: bytes,
        headers: dict[str, str] | None = None,
        *,
        own_inbox: bool = False,
    ) -> Msg:
        client = await self._connected()
        asked = partial(client.request, subject, payload, CONFIRM_S, headers=headers)
        try:
            return await asked(old_style=own_inbox)
        except NatsError as error:
            raise ConnectionError(str(error) or type(error).__name__) from error


async def _new_client(url: str) -> Client:
    """A connection that does not mend itself: a new one is made when it is needed."""
    client = Client()
    try:
        await client.connect(
            [url],
            max_reconnect_attempts=1,  # 0 would mean for ever
            reconnect_time_wait=0.02,  # type: ignore[arg-type]  # seconds, only slept for
            reconnect_to_server_handler=lambda _servers, _info: (None, _FOR_EVER_S),
            error_cb=_say_nothing,
            ping_interval=10,
            skip_subject_validation=True,
        )
    except (NatsError, OSError, asyncio.CancelledError) as error:
        with suppress(NatsError, OSError):
            await client.close()
        if isinstance(error, asyncio.CancelledError):
            raise
        raise ConnectionError(f"no NATS server answers at {url}: {error}") from error
    return client


async def _say_nothing(error: Exception) -> None:
    """Errors show in requests that fail: the client would log a traceback for each."""
