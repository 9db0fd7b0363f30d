"""The process that worlds live in: orders from the examiner come in, events go out.

It is forked from the zygote as any subject is, behind the same walls. One process sees one world
after the other; a world leaves nothing behind but what a module did to others' modules.
"""

from __future__ import annotations

import gc
import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from autograder.sim.host import Frozen
from autograder.sim.schedule import Schedule
from autograder.sim.walls import Walls
from autograder.sim.world import World
from autograder.subject import wire

EVENTS_A_LINE = 2_000
EVENTS, ANSWER = "events", "answer"


def main(channel: socket.socket, job: dict[str, Any]) -> int:
    """Serve until the examiner closes the channel; the result is the exit status."""
    world: World | None = None
    sys.unraisablehook = _but_not_of_the_dead(sys.unraisablehook)
    gc.disable()  # collected between worlds: a cycle's end must not depend on what ran before
    with Walls() as walls:
        for order in _orders(channel):
            if order["do"] == "open":
                if world is not None:
                    world.end()
                gc.collect()
                schedule = Schedule(order["seed"], order["manner"], order["pace"], order["trouble"])
                asked = {name: order[name] for name in ("prefetch", "tables")}
                world = World(job | asked, schedule, walls)
                answer = None
            elif world is not None and world.refused:  # whatever follows is of no use any more
                answer = None
            elif world is None:
                raise RuntimeError(f"no world to {order['do']} in")
            else:
                answer = world.obey(order)
            channel.sendall(_told(world, order["number"], answer))
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # the student may have closed or replaced it
            stream.flush()
    os._exit(0)


def _but_not_of_the_dead(tell: Callable[[Any], None]) -> Callable[[Any], None]:
    """Python's own words on what a collected coroutine raised, but for those of dead processes."""

    def hook(unraisable: Any) -> None:
        if not isinstance(unraisable.exc_value, Frozen):
            tell(unraisable)

    return hook


def _orders(channel: socket.socket) -> Iterator[dict[str, Any]]:
    pending = bytearray()
    while data := channel.recv(1 << 18):
        pending += data
        for line in wire.split(pending):
            yield wire.decode(line)


def _told(world: World, number: int, answer: Any) -> bytes:
    """What happened since the last order, how things stand, and the answer to this one."""
    events, world.events = world.events, []
    lines: list[list[Any]] = [
        [EVENTS, events[start : start + EVENTS_A_LINE]]
        for start in range(0, len(events), EVENTS_A_LINE)
    ]
    lines.append([wire.BEAT, *world.figures()])
    lines.append([ANSWER, world.clock.now, answer, world.refused])
    lines.append([wire.DONE, number])
    return b"".join(map(wire.encode, lines))
