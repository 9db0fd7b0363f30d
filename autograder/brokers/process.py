"""One server process: started so that it cannot outlive its record, told apart by pid and start."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import psutil

from autograder.brokers.account import BECOME, Account

# What runs before the server, in the server's own process. It waits for one byte, which its owner
# sends once the pid is on record, so that no crash leaves a server nobody knows of: end of file
# means that the owner died first. PR_SET_PDEATHSIG (prctl(2)) survives execve(2), but not a change
# of the account.
_GATE = f"""\
import os, sys
{BECOME}
tie, account = sys.argv[1:3]
if account != "same":
    become(account)
if tie != "free" and sys.platform == "linux":
    import ctypes
    ctypes.CDLL(None).prctl(1, int(tie))
if not os.read(0, 1):
    os._exit(0)
null = os.open(os.devnull, os.O_RDWR)
os.dup2(null, 0)
os.execv(sys.argv[3], sys.argv[3:])
"""

_KILL = 9  # SIGKILL, which Windows has no name for
_GOODBYE_S = 3.0
_children: dict[int, subprocess.Popen[bytes]] = {}  # ours to reap; a warm server's may stay here


@functools.cache
def boot_id() -> str:
    """What tells one run of this machine from the next; empty where the system does not say."""
    with contextlib.suppress(OSError):  # only Linux has it; the start time alone then has to do
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return ""


def start_mark(pid: int) -> str | None:
    """Text that differs between two processes which had the same pid; None when it is gone.

    On Linux the kernel's own tick count and the boot's id (proc_pid_stat(5), field 22), which no
    change of the clock moves; elsewhere the time of creation. A zombie is gone.
    """
    if sys.platform == "linux":
        try:
            stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None
        fields = stat.rpartition(")")[2].split()  # the command's name may hold spaces and brackets
        return None if fields[0] in "ZX" else f"{boot_id()}:{fields[19]}"
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return f"{process.create_time():.2f}"
    except psutil.Error:
        return None


def is_running(pid: int, mark: str) -> bool:
    """Whether the very process that was recorded still runs."""
    return pid > 0 and start_mark(pid) == mark


class Gated:
    """A process that exists, has a pid and a start mark, and waits to become the server."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        folder: Path,
        log: Path,
        environment: Mapping[str, str],
        outlives_owner: bool,
        account: Account | None = None,
        end_by: int = _KILL,
    ) -> None:
        """Start it; `end_by` is the signal it gets when the owner dies."""
        gated = os.name == "posix"  # elsewhere exec makes a new process: no gate, a wider window
        tie = "free" if outlives_owner else str(end_by)
        who = str(account or "same")
        gate = [sys.executable, "-I", "-S", "-c", _GATE, tie, who] if gated else []
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [*gate, *command],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env=dict(environment),
                start_new_session=True,  # Ctrl-C in the terminal is for the owner alone
            )
        self.pid = self._process.pid
        self.mark = start_mark(self.pid) or ""
        _children[self.pid] = self._process

    def release(self) -> None:
        """Let it become the server."""
        assert self._process.stdin is not None  # noqa: S101 - set three lines above
        with contextlib.suppress(BrokenPipeError):  # it died; whoever waits for it will notice
            self._process.stdin.write(b"g")
            self._process.stdin.flush()
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()

    @property
    def running(self) -> bool:
        """Whether it still runs."""
        return self._process.poll() is None


def kill(pid: int, mark: str, *, end_by: int = _KILL, timeout_s: float = 10.0) -> bool:
    """End exactly this process and its children, and wait until they are gone.

    SIGKILL at once: a throwaway server's data is deleted next, so there is nothing to save. With
    `end_by` that signal goes first, for a server that has to give something back to the system.
    Returns whether it is gone; false only when the machine does not let us.
    """
    if end_by != _KILL and is_running(pid, mark):
        with contextlib.suppress(OSError):
            os.kill(pid, end_by)
        wait_until(lambda: not is_running(pid, mark), timeout_s=_GOODBYE_S)
    if is_running(pid, mark):
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            family = [*process.children(recursive=True), process]
            for member in family:
                with contextlib.suppress(psutil.Error):
                    member.kill()
    gone = wait_until(lambda: not is_running(pid, mark), timeout_s=timeout_s)
    child = _children.get(pid)
    if child is not None and gone:
        if child.stdin is not None:
            child.stdin.close()  # it was never released
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(timeout=1)  # the zombie is ours to reap
            _children.pop(pid, None)
    return gone


def wait_until(condition: Callable[[], bool], *, timeout_s: float, every_s: float = 0.01) -> bool:
    """Look at `condition` until it holds or the time is up; returns whether it holds."""
    deadline = time.monotonic() + timeout_s
    pause = threading.Event()  # never set
    while not condition():
        if time.monotonic() > deadline:
            return False
        pause.wait(every_s)
    return True


class CalledOffError(Exception):
    """The start is no longer wanted."""


class Patience:
    """How long a start may take, whether somebody has called it off, and what to say meanwhile."""

    def __init__(self) -> None:
        self._deadline = math.inf
        self._off = threading.Event()

    def tell(self, text: str) -> None:
        """Say why it takes long, on stderr, to whoever waits."""
        with contextlib.suppress(BrokenPipeError):
            print(text, file=sys.stderr, flush=True)

    def limit(self, timeout_s: float) -> None:
        """From now on, this long."""
        self._deadline = time.monotonic() + timeout_s

    def call_off(self) -> None:
        """Make the next `wait` raise, from any thread."""
        self._off.set()

    def wait(self, seconds: float) -> None:
        """Pause.

        Raises
        ------
        CalledOffError
            `call_off` was called.
        TimeoutError
            The time is up.
        """
        if self._off.wait(seconds):
            raise CalledOffError
        if time.monotonic() > self._deadline:
            raise TimeoutError


def free_ports(count: int) -> list[int]:
    """Loopback ports nobody listens on at this moment, all different.

    Somebody may take one before the server binds it: the caller starts again with others.
    """
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def last_lines(log: Path | None, *, count: int = 8, width: int = 200) -> str:
    """The end of a server's log, cut to what a person reads; empty when there is none."""
    if log is None:
        return ""
    try:
        with log.open(encoding="utf-8", errors="replace") as lines:
            kept = deque((line.rstrip()[:width] for line in lines if line.strip()), maxlen=count)
    except OSError:
        return ""
    return "\n".join(kept)
