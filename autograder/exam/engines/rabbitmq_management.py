"""What only RabbitMQ's management API tells: how many messages are with consumers.

Its numbers are not of now. A quorum queue reports its counters once per tick (the setting
`quorum_tick_interval` of a node, 5 s if nobody says otherwise), and the API hands out the last
report. A number counts only if the queue has reported since the question was asked: because it
differs from what the API said then, or because an interval and a half has gone by. The interval is
measured, on a queue that is there for nothing else.

API: https://www.rabbitmq.com/docs/http-api-reference; `disable_stats` with `enable_queue_totals`
passes by the statistics database, whose numbers are older still.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import secrets
import time
import urllib.error
import urllib.request
from contextlib import suppress
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import pika

VARIABLE = "ACKADEMY_RABBITMQ_MANAGEMENT_URL"
"""Where the API is, if it is not where everybody has it."""

OFFSET = 10_000
"""The API's port above the AMQP port: 15672 and 5672."""

_LONGEST_MEASUREMENT_S = 15.0
_LOOK_EVERY_S = 0.01
_NO_REPORT = (-1, -1)  # the queue is there and has not reported yet
_TIMEOUT_S = 5.0

_intervals_s: dict[str, float] = {}  # by the API's address


class Management:
    """The API that belongs to an AMQP URL, if there is one."""

    def __init__(self, url: str) -> None:
        parameters = pika.URLParameters(url)
        login = f"{parameters.credentials.username}:{parameters.credentials.password}"
        self._base = f"http://{parameters.host}:{parameters.port + OFFSET}"
        if given := os.environ.get(VARIABLE, "").strip().rstrip("/"):
            parts = urlsplit(given)
            self._base = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
            if parts.username:
                login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        self._login = base64.b64encode(login.encode()).decode()
        self._vhost = quote(parameters.virtual_host, safe="")

    async def fresh_counts(self, queue: str) -> tuple[int, int] | None:
        """Ready and unsettled, as they were at one moment after this call; None if nobody tells.

        That the queue is known there under its unguessable name proves that the API is this very
        broker's.
        """
        asked = time.monotonic()
        first = await self._counts(queue)
        if first is None or (interval_s := await self._interval()) is None:
            return None
        deadline = asked + 1.5 * interval_s
        while True:
            late = time.monotonic() > deadline
            counts = await self._counts(queue)
            if counts != first or late:
                return None if counts == _NO_REPORT else counts
            await asyncio.sleep(_LOOK_EVERY_S)

    async def _interval(self) -> float | None:
        """Measured once per node; None where nobody lets us."""
        if self._base not in _intervals_s:
            with suppress(TimeoutError):  # an API that may be read and not written
                async with asyncio.timeout(_LONGEST_MEASUREMENT_S):
                    _intervals_s[self._base] = await self._measured()
        return _intervals_s.get(self._base)

    async def _measured(self) -> float:
        """How often queues report: the time between two reports of a queue of ours.

        Its first report may come at any time. What is published as soon as that is seen is in the
        next one.
        """
        queue = f"ackademy-tick-{secrets.token_hex(8)}"
        path = f"queues/{self._vhost}/{queue}"
        arguments = {"x-queue-type": "quorum", "x-expires": 60_000}
        await self._request("PUT", path, {"durable": True, "arguments": arguments})
        try:
            seen = []
            for number in 1, 2:
                await self._publish(queue)
                while (await self._counts(queue) or (0, 0))[0] < number:  # noqa: ASYNC110 - asked
                    await asyncio.sleep(_LOOK_EVERY_S)
                seen.append(time.monotonic())
            return seen[1] - seen[0]
        finally:
            await self._request("DELETE", path)

    async def _publish(self, queue: str) -> None:
        message = {"routing_key": queue, "payload": "", "payload_encoding": "string"}
        path = f"exchanges/{self._vhost}/amq.default/publish"
        await self._request("POST", path, {**message, "properties": {}})

    async def _counts(self, queue: str) -> tuple[int, int] | None:
        """Ready and unsettled in the last report; None if there is no such queue."""
        only = f"name={quote(queue)}&use_regex=false&page=1&page_size=100"
        wanted = f"disable_stats=true&enable_queue_totals=true&{only}"
        answer = await self._request("GET", f"queues/{self._vhost}?{wanted}")
        for each in (answer or {}).get("items", []):
            if each["name"] == queue:
                ready = each.get("messages_ready", -1)
                return int(ready), int(each.get("messages_unacknowledged", -1))
        return None

    async def _request(self, method: str, path: str, body: object = None) -> Any:
        return await asyncio.to_thread(self._request_now, method, path, body)

    def _request_now(self, method: str, path: str, body: object) -> Any:
        """The answer as JSON; None for one that is empty, or that says no, or does not come."""
        request = urllib.request.Request(  # noqa: S310 - the address is ours, or from our variable
            f"{self._base}/api/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Basic {self._login}", "Content-Type": "application/json"},
        )
        with (
            suppress(urllib.error.URLError, OSError, ValueError),
            urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer,  # noqa: S310 - the same
        ):
            text = answer.read()
            return json.loads(text) if text else None
        return None
