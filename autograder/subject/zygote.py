"""The process that subjects are forked from, and the keeper that watches over each of them.

Started by the examiner as `python -I -m autograder.subject.zygote FD ENGINE [MODULE...]` in a session of its
own and with a clean environment. For each request it receives a job and three descriptors: the
keeper's control socket, the subject's event socket, and the pipe for what the subject prints.

When the examiner dies, however it dies, its ends of the sockets close: the zygote leaves, and
each keeper kills its subject and everything the subject started.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from autograder.subject import exits, host, isolation, seccomp, wire

LARGEST_JOB = 1 << 20  # bytes
SPARE_PROCESSES = 256  # threads and processes a subject may add to what the user runs already


def main() -> NoReturn:
    """Serve fork requests until the examiner closes the socket."""
    requests = socket.socket(fileno=int(sys.argv[1]))
    broker = sys.argv[2]
    adapters = (f"autograder.messaging.{broker}", f"autograder.messaging.{broker}_route")
    for module in (*adapters, *sys.argv[3:]):
        import_module(module)
    # Keepers are not waited for: what they have to say they say on their own socket.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    process_limit = isolation.threads_of_this_user() + SPARE_PROCESSES
    gc.collect()
    gc.freeze()  # what is imported is shared with every fork, and stays shared
    requests.sendall(b"ready\n")
    while True:
        data, descriptors, _, _ = socket.recv_fds(requests, LARGEST_JOB, 3)
        if not data:
            os._exit(0)
        job = json.loads(data) | {"processes": process_limit}
        if os.fork() == 0:
            requests.close()
            _keep(job, *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def _keep(job: dict[str, Any], control_fd: int, events_fd: int, output_fd: int) -> NoReturn:
    """Fork the subject, forward signals to it, and report its end when nothing of it is left."""
    status = 70
    try:
        os.setsid()
        isolation.adopt_orphans()
        wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        control = socket.socket(fileno=control_fd)
        subject = os.fork()
        if subject == 0:
            control.close()
            os.close(wake_read)
            signal.set_wakeup_fd(-1)
            os.close(wake_write)
            _become_subject(job, events_fd, output_fd)
        # Parent and child both form the group: whoever is first, no signal finds it missing.
        with suppress(PermissionError, ProcessLookupError):
            os.setpgid(subject, subject)
        os.close(events_fd)
        os.close(output_fd)
        control.sendall(wire.encode({"pid": subject}))
        status = _watch(subject, control, wake_read)
    finally:
        os._exit(status)


def _watch(subject: int, control: socket.socket, wake: int) -> int:
    """Pass signals on until the subject ends; then end its descendants and report."""
    pending = bytearray()
    examiner_lives = True
    while True:
        listening = [wake, control.fileno()] if examiner_lives else [wake]
        ready, _, _ = select.select(listening, [], [])
        if examiner_lives and control.fileno() in ready:
            data = control.recv(4096)
            pending += data
            for line in wire.split(pending):
                number = json.loads(line)["signal"]
                _signal(subject, number)
                with suppress(OSError):
                    control.sendall(wire.encode({"sent": number}))
            if not data:  # the examiner is gone, or has had enough
                examiner_lives = False
                _signal(subject, signal.SIGKILL)
        if wake in ready:
            with suppress(BlockingIOError):
                os.read(wake, 4096)
            if os.waitid(os.P_PID, subject, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                break
    # Not reaped yet: the zombie keeps the group's number from being used for another one.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(subject, signal.SIGKILL)
    _, status = os.waitpid(subject, 0)
    stragglers = _end_stragglers()
    code = os.waitstatus_to_exitcode(status)
    with suppress(OSError):
        control.sendall(wire.encode({"exited": code, "stragglers": stragglers}))
    return 0


def _signal(subject: int, number: int) -> None:
    """SIGTERM goes to the process, as an orchestrator sends it; all else to its whole group.

    SIGCONT waits for the process to stand still: at a break point it says so before it does.
    """
    if number == signal.SIGCONT:
        os.waitid(os.P_PID, subject, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    with suppress(ProcessLookupError):
        if number == signal.SIGTERM:
            os.kill(subject, number)
        else:
            os.killpg(subject, number)


def _end_stragglers() -> int:
    """Kill whatever the subject left behind, in whichever session, until nothing is left."""
    ended = 0
    while True:
        children = _children()
        for child in children:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        try:
            # wait for one of those just killed, then take along whoever is dead as well
            pid, _ = os.waitpid(-1, 0 if children else os.WNOHANG)
            while pid:
                ended += 1
                pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if not children:  # there are some, but this system cannot list them to be killed
            return ended


def _children() -> list[int]:
    """Direct children of this process: orphans arrive here, one generation after the other."""
    me = os.getpid()
    try:
        listing = Path(f"/proc/self/task/{me}/children").read_text()
    except OSError:  # a kernel without this listing, or no Linux
        return [pid for pid in _all_pids() if _parent(pid) == me]
    return [int(pid) for pid in listing.split()]


def _all_pids() -> list[int]:
    return [int(folder.name) for folder in Path("/proc").glob("[0-9]*")]


def _parent(pid: int) -> int:
    """The parent of a process, from the fields behind its name in /proc/PID/stat (proc(5))."""
    with suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


def _become_subject(job: dict[str, Any], events_fd: int, output_fd: int) -> NoReturn:
    """In the forked child: put up the walls, then hand over to the host. Never returns."""
    status = exits.EXIT_BUG
    try:
        os.setpgid(0, 0)  # the keeper leads the session already: there is no terminal to lose
        isolation.die_with_parent(signal.SIGKILL)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        with Path(os.devnull).open("rb") as nothing:
            os.dup2(nothing.fileno(), 0)
        os.dup2(output_fd, 1)
        os.dup2(output_fd, 2)
        os.dup2(events_fd, 3)
        os.closerange(4, 1024)
        sys.stdout = os.fdopen(1, "w", buffering=1, errors="replace")  # a kill loses no line
        os.chdir(job["workspace"])
        isolation.limit_resources(
            memory_bytes=job["memory_bytes"], cpu_s=job["cpu_s"], processes=job["processes"]
        )
        if job["isolation"] == "landlock":
            isolation.restrict(job["read"], [job["workspace"]], job["ports"])
            if seccomp.available():
                seccomp.drop_capabilities()
                seccomp.refuse(names=job["names"])
        status = host.main(socket.socket(fileno=3), job)
    except BaseException as error:  # noqa: BLE001 - a fork of the zygote must end here
        with suppress(BaseException):
            print(f"ackademy: the host failed: {error!r}", file=sys.stderr, flush=True)
    finally:
        os._exit(status)


if __name__ == "__main__":
    main()
