"""The system call filter, tried from inside, and its program read by a small machine."""

from __future__ import annotations

import errno
import itertools
import os
import sys

import pytest

from autograder.subject import seccomp
from autograder.tests.subject.test_isolation import inside

needs_filter = pytest.mark.skipif(
    not seccomp.available(), reason="this system has no system call filter"
)
LIBC = """
import ctypes, resource, tempfile
from autograder.subject import seccomp
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    if libc.syscall(ctypes.c_long(number), *map(ctypes.c_long, arguments)) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
"""


@needs_filter
def test_no_socket_but_of_tcp_and_to_itself():
    said = inside(
        LIBC
        + """
seccomp.refuse(names=False)
attempt("tcp", lambda: socket.socket().close())
attempt("tcp over ipv6", lambda: socket.socket(socket.AF_INET6).close())
attempt("pair", lambda: [each.close() for each in socket.socketpair()])
attempt("multipath", lambda: socket.socket(proto=262))
attempt("datagram", lambda: socket.socket(type=socket.SOCK_DGRAM))
attempt("raw", lambda: socket.socket(type=socket.SOCK_RAW, proto=1))
attempt("unix", lambda: socket.socket(socket.AF_UNIX))
attempt("netlink", lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW))
attempt("datagram pair", lambda: socket.socketpair(type=socket.SOCK_DGRAM))
attempt("flags", lambda: socket.socket(type=socket.SOCK_STREAM | socket.SOCK_NONBLOCK).close())
"""
    )
    allowed = {name for name, how in said.items() if how == "ok"}
    assert allowed == {"tcp", "tcp over ipv6", "pair", "flags"}
    assert set(said.values()) == {"ok", "PermissionError"}


@needs_filter
def test_a_name_may_be_looked_up_where_it_must():
    said = inside(
        LIBC
        + """
seccomp.refuse(names=True)
attempt("datagram", lambda: socket.socket(type=socket.SOCK_DGRAM).close())
attempt("unix", lambda: socket.socket(socket.AF_UNIX))
attempt("raw", lambda: socket.socket(type=socket.SOCK_RAW, proto=1))
"""
    )
    assert said == {"datagram": "ok", "unix": "PermissionError", "raw": "PermissionError"}


@needs_filter
def test_the_limits_of_others_are_out_of_reach():
    said = inside(
        LIBC
        + """
me, parent = os.getpid(), os.getppid()
seccomp.refuse(names=False)
soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
attempt("own limit", lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, soft)))
attempt("limit", lambda: resource.prlimit(parent, resource.RLIMIT_NOFILE, (0, 0)))
attempt("own priority", lambda: os.setpriority(os.PRIO_PROCESS, 0, 19))
attempt("priority", lambda: os.setpriority(os.PRIO_PROCESS, parent, 19))
attempt("user's priority", lambda: os.setpriority(os.PRIO_USER, 0, 19))
attempt("own processors", lambda: os.sched_setaffinity(0, os.sched_getaffinity(0)))
attempt("processors", lambda: os.sched_setaffinity(parent, {0}))
attempt("scheduler", lambda: os.sched_setscheduler(parent, os.SCHED_IDLE, os.sched_param(0)))
attempt("thread", lambda: __import__("threading").Thread(target=lambda: None).start())
attempt("child", lambda: os.waitpid(os.spawnl(os.P_NOWAIT, "/bin/true", "true"), 0))
"""
    )
    allowed = {name for name, how in said.items() if how == "ok"}
    assert allowed == {"own limit", "own priority", "own processors", "thread", "child"}
    assert set(said.values()) == {"ok", "PermissionError"}


@needs_filter
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="numbers are those of x86_64")
def test_what_is_not_for_students_is_refused():
    said = inside(
        LIBC
        + """
seccomp.refuse(names=False)
attempt("io_uring", lambda: call(425, 1, 0))
attempt("shared memory", lambda: call(29, 0, 4096, 0o1600))
attempt("ptrace", lambda: call(101, 16, os.getppid(), 0, 0))
attempt("x32", lambda: call(0x40000000 + 39))
attempt("high bits", lambda: call(41, 1 | 1 << 40, 1, 0))
mine = tempfile.mkdtemp()
attempt("mode", lambda: os.chmod(mine, 0))
attempt("owner", lambda: os.chown(mine, os.getuid(), os.getgid()))
attempt("times", lambda: os.utime(mine, (0, 0)))
attempt("attribute", lambda: os.setxattr(mine, "user.note", b"1"))
attempt("listen", lambda: socket.socket().listen())
attempt("fast open", lambda: socket.socket().sendto(b"x", 0x20000000, ("127.0.0.1", 1)))
attempt("user namespace", lambda: call(56, 0x10000000 | 17, 0, 0, 0, 0))
"""
    )
    assert set(said.values()) == {"PermissionError"}


@needs_filter
@pytest.mark.skipif(os.geteuid() != 0, reason="only root has capabilities to lose")
def test_root_keeps_what_it_needs_to_read():
    said = inside(
        LIBC
        + """
seccomp.drop_capabilities()
attempt("read", lambda: open("/etc/shadow").read())
attempt("limit", lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (1 << 20, 1 << 30)))
attempt("host name", lambda: socket.sethostname(socket.gethostname()))
attempt("owner", lambda: os.chown(tempfile.mkdtemp(), 1, 1))
"""
    )
    assert said.pop("read") == "ok"
    assert "ok" not in said.values()


def run(program, *, number: int, architecture: int, arguments: tuple[int, ...]) -> int:
    """The kernel's side: a classic BPF machine with the instructions that the filter uses."""
    memory = {0: number, 4: architecture}
    for place, value in enumerate(arguments):
        memory[16 + 8 * place] = value & 0xFFFFFFFF
    accumulator, place = 0, 0
    for _ in itertools.repeat(None, len(program)):
        code, if_true, if_false, k = program[place]
        place += 1
        match code:
            case 0x20:
                accumulator = memory[k]
            case 0x54:
                accumulator &= k
            case 0x15:
                place += if_true if accumulator == k else if_false
            case 0x35:
                place += if_true if accumulator >= k else if_false
            case 0x06:
                return k
    raise AssertionError("the program does not end")


@pytest.mark.parametrize(
    ("machine", "architecture", "socket", "prlimit", "ptrace", "read"),
    [("x86_64", 0xC000003E, 41, 302, 101, 0), ("aarch64", 0xC00000B7, 198, 261, 117, 63)],
)
def test_the_program_of_each_architecture(machine, architecture, socket, prlimit, ptrace, read):
    program = seccomp._program(machine, names=False)
    refused = 0x00050000 | errno.EPERM

    def verdict(number: int, *arguments: int, architecture: int = architecture) -> bool:
        padded = (*arguments, 0, 0, 0)
        said = run(program, number=number, architecture=architecture, arguments=padded)
        assert said in {0x7FFF0000, refused}
        return said != refused

    assert verdict(read)
    assert not verdict(read, architecture=0x40000003)  # a 32-bit call on a 64-bit kernel
    assert verdict(socket, 2, 1 | 0o2000000, 0)
    assert verdict(socket, 10, 1, 6)
    assert not verdict(socket, 2, 2, 0)
    assert not verdict(socket, 1, 1, 0)
    assert not verdict(socket, 2, 1, 262)
    assert (
        run(program, number=435, architecture=architecture, arguments=(0,))
        == 0x00050000 | errno.ENOSYS
    )
    assert verdict(prlimit, 0, 7)
    assert not verdict(prlimit, 4711, 7)
    assert not verdict(ptrace)
    assert len(program) < 4096  # BPF_MAXINSNS


def test_elsewhere_there_is_none(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not seccomp.available()
