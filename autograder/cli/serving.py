"""Servers: kept warm, looked at, and the one download that an embedded Kafka needs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from autograder import brokers
from autograder.brokers import MissingError, Server, kafka_jars
from autograder.cli.failures import say
from autograder.cli.output import Out
from autograder.model import UsageError
from autograder.report.commands import typed

T = TypeVar("T")


def up(engines: Sequence[str], provider: str | None, *, yes: bool) -> None:
    """Start and keep a server per engine or store, and say where each is."""
    for engine in dict.fromkeys(engines):
        start = partial(brokers.up, [engine], provider, preparing=_preparing)
        servers = installing_if_asked(start, yes=yes)
        for server in servers:
            for notice in server.notices:
                say(notice)
            print(f"{server.engine} {server.version} is up at {server.url} ({server.provider})")
    brokers_up = [engine for engine in engines if engine in brokers.engines()]
    print(typed(f"Next: ackademy check{f' --engine {brokers_up[0]}' if brokers_up else ''}"))


def down(engines: Sequence[str]) -> None:
    """Stop the warm servers of these engines and stores, or all of them."""
    for engine in engines:
        brokers.require_known(engine)
    stopped = brokers.down(engines or None)
    print(f"Stopped: {', '.join(stopped)}." if stopped else "No warm server was running.")


def status() -> None:
    """Warm servers first, then what every engine and store could get here and what it lacks."""
    console = Out()
    found = brokers.status()
    for notice in found.notices:
        say(notice)
    for each in found.servers:
        health = "answers" if each.healthy else "does not answer"
        console.tell(
            f"{each.engine} {each.version} at {each.url}: {health}, up {each.uptime_s:.0f} s, "
            f"{each.memory_bytes / 2**20:.0f} MiB, {each.container or f'pid {each.pid}'} ({each.provider})"
        )
    for engine in (*brokers.engines(), *brokers.stores()):
        offers = brokers.available(engine)
        chosen = next((name for name, missing in offers.items() if missing is None), None)
        console.print(f"\n{engine}: {f'a check uses {chosen}' if chosen else 'not to be had here'}")
        for name, missing in offers.items():
            for place, line in enumerate(_told(missing, chosen)):
                console.tell(f"  {'' if place else name:<10} {line}")
    if not found.servers:
        console.tell("\nNext: ackademy brokers up nats")


def _told(missing: brokers.Missing | None, chosen: str | None) -> list[str]:
    """What a provider is good for: what it lacks, and below it the command, if that is of use.

    A command that uses another provider is none for this one.
    """
    if missing is None:
        return ["ready"]
    use = missing.next_command and not (chosen and "--provider" in missing.next_command)
    return [missing.sentence, *([f"to have it: {missing.next_command}"] if use else [])]


def install(engine: str) -> None:
    """Fetch what the embedded server of this engine needs."""
    if engine != "kafka":
        raise UsageError(
            f"Only kafka has something to install, not {engine!r}.",
            next_command="ackademy brokers install kafka",
        )
    fetch_kafka()
    print(f"Apache Kafka {kafka_jars.version()} is installed in {kafka_jars.home()}")
    print(typed("Next: ackademy check --engine kafka"))


def fetch_kafka() -> None:
    """Fetch Apache's jars, with a progress bar where somebody can see one.

    Raises the errors of `download.fetch`. Ctrl-C keeps what came: the next call goes on there.
    """
    console = Console(stderr=True, highlight=False)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
    )
    what = f"Apache Kafka {kafka_jars.version()}"
    if not console.is_terminal:
        say(f"Fetching {what}, {kafka_jars.size_bytes() / 1e6:.0f} MB.")
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=kafka_jars.size_bytes())

        def waiting() -> None:
            console.print("Another command is fetching it; waiting for that one.")

        brokers.install_kafka(
            lambda done, total: bar.update(task, completed=done, total=total),
            waiting=waiting,
            preparing=_preparing,
        )


def _preparing() -> None:
    say("Preparing a start cache, once: it makes every start of Kafka more than twice as fast.")


def installing_if_asked(action: Callable[[], T], *, yes: bool) -> T:
    """Do `action`; if all it lacks is Kafka's jars, offer to fetch them and do it again.

    Asks first, unless `yes`. Raises the `MissingError` again if there is nobody to ask, and
    `UsageError` if the answer is no.
    """
    try:
        return action()
    except MissingError as error:
        if not _may_install(error, yes=yes):
            raise
    fetch_kafka()
    return action()


def _may_install(error: MissingError, *, yes: bool) -> bool:
    embedded = error.reasons.get("embedded")
    if embedded is None or embedded.next_command != kafka_jars.INSTALL_COMMAND:
        return False
    if yes:
        return True
    if not _somebody_is_there():
        say("Nobody is here to be asked: with --yes the same command fetches what is missing.")
        return False
    size = f"{kafka_jars.size_bytes() / 1e6:.0f} MB"
    say(
        f"There is no Kafka here yet. Apache's own jars ({size}, once) make one; then a start cache"
    )
    say("is made (about 10 s and 66 MB more, once). Both go into your cache folder.")
    if not typer.confirm("Fetch them now?", default=True, err=True):
        raise UsageError("Kafka was not fetched.", next_command=kafka_jars.INSTALL_COMMAND)
    return True


def _somebody_is_there() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


@contextmanager
def acquired(engine: str, provider: str | None = None, *, yes: bool) -> Iterator[Server | None]:
    """`brokers.acquire` with the offer to fetch what is missing. The simulation has no server."""
    if engine == "sim":
        yield None
        return
    with installing_if_asked(lambda: _Entered(engine, provider), yes=yes) as server:
        yield server


class _Entered:
    """A session that was entered at once, so that what is missing shows before the block."""

    def __init__(self, engine: str, provider: str | None) -> None:
        self._session = brokers.acquire(engine, provider)
        self._server = self._session.__enter__()

    def __enter__(self) -> Server:
        return self._server

    def __exit__(self, *error: object) -> None:
        self._session.__exit__(None, None, None)
