"""The examiner's side of the subject's process: the zygote it is forked from, and its signals."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from signal import Signals
from typing import Any, BinaryIO, Self

from autograder.messaging.adapter import Lane
from autograder.model import Call, GraderError
from autograder.subject import isolation, wire

READY_TIMEOUT_S = 30
FOLDER, OWNER = "ackademy-subject-", ".owner"  # in the system's temporary folder
MOST_EVENT_BYTES = 256 << 20  # of one subject: ten times what the largest run says
KEPT_OUTPUT = 32 << 10  # bytes kept from the beginning and from the end of what a subject prints


@dataclass(frozen=True, slots=True)
class Job:
    """What a subject process is asked to do."""

    module: Path
    call: Call
    engine: str
    lane: Lane
    options: Mapping[str, Any]
    prefetch: int
    ports: tuple[int, ...]
    dead_letters: Lane | None = None
    names: bool = False  # whether it may have to look up the broker's name
    stop_first: bool = False
    stores: Mapping[str, Any] = field(default_factory=dict)  # addresses of `db` and `lease`
    orders: tuple[dict[str, Any], ...] = ()  # gates and break points that hold from the start
    memory_bytes: int = 2 << 30
    cpu_s: int = 120


@dataclass
class Output:
    """What a subject printed: the beginning and the end, and how much it was."""

    size: int = 0
    _head: bytearray = field(default_factory=bytearray)
    _tail: bytearray = field(default_factory=bytearray)

    def add(self, data: bytes) -> None:
        """Keep what there is room for."""
        self.size += len(data)
        room = KEPT_OUTPUT - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail = (self._tail + data)[-KEPT_OUTPUT:]

    def text(self) -> str:
        """The kept output; what was left out is said."""
        head, tail = (part.decode(errors="replace") for part in (self._head, self._tail))
        left_out = self.size - len(self._head) - len(self._tail)
        gap = f"\n[... {left_out:,} bytes left out ...]\n" if left_out else ""
        return f"{head}{gap}{tail}"


def isolation_here() -> str:
    """`landlock` where the kernel has it, else `plain`; ACKADEMY_ISOLATION=plain asks for less."""
    wanted = os.environ.get("ACKADEMY_ISOLATION", "")
    if wanted == "plain" or not isolation.landlock_version():
        return "plain"
    return "landlock"


def _own(folder: Path) -> BinaryIO:
    """Lock a folder for as long as this process lives: nothing else says so across containers.

    The lock gets its name when it is held: an unlocked one would be swept as a dead examiner's.
    """
    unnamed = folder / f"{OWNER}.new"
    lock = unnamed.open("wb")
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    unnamed.rename(folder / OWNER)
    return lock


def _sweep() -> None:
    """Remove what examiners left behind that were killed before they could."""
    for lock in Path(tempfile.gettempdir()).glob(f"{FOLDER}*/{OWNER}"):
        with suppress(OSError), lock.open("wb") as held:  # another user's, or one that is owned
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(lock.parent)


def _remove(folder: Path) -> None:
    """Remove a folder that a submission wrote to: `rmtree` recurses, and gives up at a depth."""
    with suppress(OSError):
        subprocess.run(
            ["/bin/rm", "-rf", "--", str(folder)], stderr=subprocess.DEVNULL, check=False
        )


class Zygote:
    """The warm process of one engine. Use it as a context manager; it serves many runs."""

    def __init__(
        self,
        engine: str,
        *,
        isolation_kind: str,
        hash_seed: int = 0,
        also: Sequence[str] = (),
    ) -> None:
        """`also`: modules that its subjects will need besides their broker's adapter."""
        self.engine = engine
        self._also = also
        self.isolation = isolation_kind
        self._hash_seed = hash_seed
        self._others: dict[int, Zygote] = {}  # by hash seed: a process has one for life
        self._starting = threading.Lock()  # several runs may ask whether it is ready
        self._ready = False
        self._process: subprocess.Popen[bytes] | None = None
        self._requests: socket.socket | None = None
        self._folder = Path()
        self._lock: BinaryIO | None = None

    def __enter__(self) -> Self:
        _sweep()
        self._folder = Path(tempfile.mkdtemp(prefix=FOLDER))
        self._lock = _own(self._folder)
        ours, theirs = socket.socketpair()
        environment = {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self._folder),
            "TMPDIR": str(self._folder),
            "LANG": "C.UTF-8",
            "PYTHONHASHSEED": str(self._hash_seed),  # the order of a set of texts repeats
        }
        # as isolated as -I, which would not listen to the line above
        command = (sys.executable, "-s", "-P", "-m", "autograder.subject.zygote")
        self._process = subprocess.Popen(
            (*command, str(theirs.fileno()), self.engine, *self._also),
            pass_fds=(theirs.fileno(),),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd=self._folder,
            start_new_session=True,  # Ctrl-C is for the examiner; it ends its subjects itself
        )
        theirs.close()
        self._requests = ours
        return self

    def __exit__(self, *_: object) -> None:
        for other in self._others.values():
            other.__exit__()
        if self._requests is not None:
            self._requests.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            if self._process.stderr:
                self._process.stderr.close()
        if self._lock is not None:
            _remove(self._folder)
            self._lock.close()

    def wait_ready(self) -> None:
        """Return when the zygote has imported its adapter. Raises `GraderError` if it cannot."""
        if self._requests is None or self._process is None:
            raise GraderError("The zygote was not started.")
        with self._starting:
            if self._ready:
                return
            self._requests.settimeout(READY_TIMEOUT_S)
            try:
                self._ready = self._requests.recv(16) == b"ready\n"
            except OSError:
                self._ready = False
            self._requests.settimeout(None)
        if not self._ready:
            self._process.kill()
            _, errors = self._process.communicate()
            last = errors.decode(errors="replace").strip().splitlines()[-1:]
            raise GraderError(f"The {self.engine} adapter does not load: {' '.join(last)}")

    def with_hash_seed(self, hash_seed: int) -> Zygote:
        """The zygote whose subjects have this PYTHONHASHSEED; started when it is first asked for."""
        if hash_seed == self._hash_seed:
            return self
        if hash_seed not in self._others:
            other = Zygote(
                self.engine, isolation_kind=self.isolation, hash_seed=hash_seed, also=self._also
            )
            self._others[hash_seed] = other.__enter__()
        return self._others[hash_seed]

    def workspace(self, module: Path) -> Path:
        """A fresh folder that holds a copy of the student's module and nothing else."""
        folder = Path(tempfile.mkdtemp(prefix="run-", dir=self._folder))
        copy = folder / module.name
        copy.write_bytes(module.read_bytes())
        return copy

    def fork(self, job: Job, on_line: Callable[[float, list[Any]], None]) -> Subject:
        """Start a subject. Its lines go to `on_line` with the time they arrived."""
        if self._requests is None:
            raise GraderError("The zygote was not started.")
        control, their_control = socket.socketpair()
        events, their_events = socket.socketpair()
        output, their_output = os.pipe()
        request = asdict(job) | {
            "module": str(job.module),
            "workspace": str(job.module.parent),
            "isolation": self.isolation,
            "read": _readable(),
        }
        theirs = (their_control.fileno(), their_events.fileno(), their_output)
        try:
            socket.send_fds(self._requests, [json.dumps(request).encode()], theirs)
        except OSError as error:
            control.close()
            events.close()
            os.close(output)
            raise GraderError(f"The zygote is gone: {error}.") from error
        finally:
            their_control.close()
            their_events.close()
            os.close(their_output)
        return Subject(control, events, output, on_line)


def _readable() -> list[str]:
    """What a subject may read beside its workspace: Python, its packages and this package."""
    package = Path(__file__).resolve().parent.parent
    folders = {sys.prefix, sys.base_prefix, sys.exec_prefix, str(package)}
    return sorted(folders | {str(Path(sys.executable).resolve().parent)})


class Subject:
    """One subject process, seen from outside."""

    def __init__(
        self,
        control: socket.socket,
        events: socket.socket,
        output: int,
        on_line: Callable[[float, list[Any]], None],
    ) -> None:
        self._control, self._events, self._output = control, events, output
        self._on_line = on_line
        self._loop = asyncio.get_running_loop()
        self._orders = 0
        self._answers: dict[int, asyncio.Future[None]] = {}
        self._sent: list[asyncio.Future[None]] = []  # signals that the keeper has still to send
        self._event_bytes, self._control_bytes = bytearray(), bytearray()
        self._event_size = 0
        self.printed = Output()
        self.pid = 0
        self.exit_code: int | None = None  # negative: ended by that signal
        self.stragglers = 0
        self.garbage = ""  # a line that is not ours, if one came
        self.gone = self._loop.create_future()  # set when nothing of it is left
        self._open = 3
        control.setblocking(False)  # noqa: FBT003 - the socket API takes a bare flag
        events.setblocking(False)  # noqa: FBT003 - the same
        os.set_blocking(output, False)
        self._loop.add_reader(control, self._read_control)
        self._loop.add_reader(events, self._read_events)
        self._loop.add_reader(output, self._read_output)

    def signal(self, number: Signals) -> None:
        """Send a signal: SIGTERM to the process, others to its group. No effect once it is gone."""
        with suppress(OSError):
            self._control.send(wire.encode({"signal": int(number)}))
            self._sent.append(self._loop.create_future())

    async def deliver(self, number: Signals) -> None:
        """Send a signal; return when the process has it, or is gone."""
        before = len(self._sent)
        self.signal(number)
        for sent in self._sent[before:]:
            await asyncio.wait({sent, self.gone}, return_when=asyncio.FIRST_COMPLETED)

    async def order(self, do: str, **details: Any) -> None:
        """Give the host an order and wait until it is carried out, or the subject is gone."""
        await self.orders([(do, details)])

    async def orders(self, orders: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
        """Give orders that are carried out one after the other; returns when the last one is."""
        lines: list[bytes] = []
        for do, details in orders:
            self._orders += 1
            lines.append(wire.encode({"do": do, "number": self._orders, **details}))
        answer = self._answers[self._orders] = self._loop.create_future()
        with suppress(OSError):
            await self._loop.sock_sendall(self._events, b"".join(lines))
            await asyncio.wait({answer, self.gone}, return_when=asyncio.FIRST_COMPLETED)

    async def end(self) -> None:
        """Kill it if it lives, and wait until nothing of it is left. Raises `GraderError` if it stays."""
        if not self.gone.done():
            self.signal(signal.SIGKILL)
            done, _ = await asyncio.wait({self.gone}, timeout=20)
            if not done:
                raise GraderError(f"The subject (process {self.pid}) does not die.")

    def _read_events(self) -> None:
        try:
            data = self._events.recv(1 << 18)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._close_one(self._events)
            return
        now = time.monotonic()
        if self.garbage:
            return
        self._event_bytes += data
        self._event_size += len(data)
        if self._event_size > MOST_EVENT_BYTES:
            self.refuse(f"more than {MOST_EVENT_BYTES >> 20} MiB of events")
            return
        try:
            for line in wire.decode_all(wire.split(self._event_bytes)):
                self._event_line(now, line)
        except (ValueError, TypeError, KeyError, IndexError) as error:
            self.refuse(str(error))
        if len(self._event_bytes) > wire.LONGEST_LINE:
            self.refuse("an endless line")

    def _event_line(self, now: float, line: list[Any]) -> None:
        if line[0] == wire.DONE:
            answer = self._answers.pop(line[1], None)
            if answer is not None and not answer.done():
                answer.set_result(None)
        else:
            self._on_line(now, line)

    def refuse(self, what: str) -> None:
        """Something that is not ours came over the host's channel: nothing more is believed."""
        self.garbage = what[:80]
        self._event_bytes.clear()
        self.signal(signal.SIGKILL)

    def _read_output(self) -> None:
        try:
            data = os.read(self._output, 1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self.printed.add(data)
        else:
            self._close_one(self._output)

    def _read_control(self) -> None:
        try:
            data = self._control.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._close_one(self._control)
            return
        self._control_bytes += data
        for line in wire.split(self._control_bytes):
            said = wire.decode(line)
            if "sent" in said:
                self._sent.pop(0).set_result(None)
            self.pid = said.get("pid", self.pid)
            self.exit_code = said.get("exited", self.exit_code)
            self.stragglers = said.get("stragglers", self.stragglers)

    def _close_one(self, channel: socket.socket | int) -> None:
        """One of the three channels ended; when all have, nothing of the subject is left."""
        self._loop.remove_reader(channel)
        if isinstance(channel, int):
            os.close(channel)
        else:
            channel.close()
        self._open -= 1
        if self._open == 0 and not self.gone.done():
            self.gone.set_result(None)


def exit_text(code: int | None) -> str:
    """`status 3`, `signal SIGKILL`, or that the keeper did not live to tell."""
    if code is None:
        return "unknown: its keeper was killed"
    if code >= 0:
        return f"status {code}"
    with suppress(ValueError):
        return f"signal {signal.Signals(-code).name}"
    return f"signal {-code}"
