"""Walls around a student's process: Landlock where the kernel has it, resource limits everywhere.

What Landlock does not know of, `seccomp` refuses.

Landlock is a Linux security module that a process applies to itself, without privileges and for
good (https://docs.kernel.org/userspace-api/landlock.html). It keeps the process id, so signals
from outside arrive as they would in production. The kernel is asked by the system call; files
under /sys say nothing on some machines that have it.
"""

from __future__ import annotations

import ctypes
import os
import resource
import struct
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

# System call numbers are the same on every architecture Linux added them for (since 5.13).
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_RULE_PATH_BENEATH, _RULE_NET_PORT = 1, 2
_PR_SET_NO_NEW_PRIVS, _PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 38, 1, 36

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _TRUNCATE = 1, 2, 4, 8, 1 << 14
_FILE_ONLY = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE
_READ = _EXECUTE | _READ_FILE | _READ_DIR
# Rights known to each version of the interface: 2 added REFER, 3 TRUNCATE, 5 IOCTL_DEV.
_ALL_FILE_RIGHTS = {1: 0x1FFF, 2: 0x3FFF, 3: 0x7FFF, 4: 0x7FFF, 5: 0xFFFF}
_BIND_TCP, _CONNECT_TCP = 1, 2  # since 4
_SCOPE_ABSTRACT_SOCKETS, _SCOPE_SIGNALS = 1, 2  # since 6

# What a Python process must read to resolve names, load libraries and know the time.
_SYSTEM = (
    "/usr", "/lib", "/lib64", "/bin", "/etc/ssl", "/etc/hosts", "/etc/resolv.conf",
    "/etc/nsswitch.conf", "/etc/host.conf", "/etc/gai.conf", "/etc/localtime",
    "/etc/ld.so.cache", "/dev/urandom", "/dev/null", "/proc/self",
)  # fmt: skip


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _syscall(number: int, *arguments: object) -> int:
    result = int(_libc().syscall(ctypes.c_long(number), *arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def landlock_version() -> int:
    """Version of the kernel's Landlock interface; 0 where there is none."""
    if sys.platform != "linux":
        return 0
    with suppress(OSError):
        return _syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(1))
    return 0


def restrict(read: Iterable[str], write: Iterable[str], ports: Sequence[int]) -> None:
    """Allow this process to read and write below these paths and connect to these ports only.

    Ports are limited from interface version 4 on, signals to processes outside from 6 on. Raises
    `OSError` if the kernel refuses: a submission never runs with fewer walls than promised.
    """
    version = landlock_version()
    rights = _ALL_FILE_RIGHTS[min(version, 5)]
    network = _BIND_TCP | _CONNECT_TCP if version >= 4 else 0
    scopes = _SCOPE_ABSTRACT_SOCKETS | _SCOPE_SIGNALS if version >= 6 else 0
    fields = 1 if version < 4 else 2 if version < 6 else 3
    attributes = struct.pack(f"{fields}Q", *(rights, network, scopes)[:fields])
    ruleset = _syscall(
        _CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint32(0)
    )
    for path in (*_SYSTEM, *read):
        _allow_path(ruleset, path, _READ & rights)
    for path in (*write, "/dev/null"):
        _allow_path(ruleset, path, rights)
    if network:
        for port in ports:
            rule = struct.pack("QQ", _CONNECT_TCP, port)
            _syscall(_ADD_RULE, ruleset, _RULE_NET_PORT, rule, ctypes.c_uint32(0))
    _libc().prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _syscall(_RESTRICT_SELF, ruleset, ctypes.c_uint32(0))
    os.close(ruleset)


def _allow_path(ruleset: int, path: str, rights: int) -> None:
    try:
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # this system has no such folder
    try:
        if not Path(path).is_dir():
            rights &= _FILE_ONLY
        rule = struct.pack("=Qi", rights, handle)
        _syscall(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, rule, ctypes.c_uint32(0))
    finally:
        os.close(handle)


def limit_resources(*, memory_bytes: int, cpu_s: int, processes: int) -> None:
    """Cap address space, processor time, processes, files and core dumps of this process.

    A limit that this system does not have or refuses is left as it is: macOS, for one, does not
    enforce the address space.
    """
    wanted = {
        "RLIMIT_AS": memory_bytes,
        "RLIMIT_CPU": cpu_s,
        "RLIMIT_NPROC": processes,
        "RLIMIT_FSIZE": 64 << 20,
        "RLIMIT_NOFILE": 512,
        "RLIMIT_CORE": 0,
    }
    for name, value in wanted.items():
        number = getattr(resource, name, None)
        if number is None or (not value and name != "RLIMIT_CORE"):
            continue
        with suppress(ValueError, OSError):
            _, hard = resource.getrlimit(number)
            ceiling = value if hard == resource.RLIM_INFINITY else min(value, hard)
            # At the soft limit of processor time comes SIGXCPU, at the hard one SIGKILL: the
            # examiner wants to tell them apart.
            soft = max(1, ceiling - 5) if name == "RLIMIT_CPU" else ceiling
            resource.setrlimit(number, (soft, ceiling))


def die_with_parent(signal_number: int) -> None:
    """Have the kernel send this signal when the parent dies (Linux; nothing elsewhere)."""
    if sys.platform == "linux":
        _libc().prctl(_PR_SET_PDEATHSIG, signal_number, 0, 0, 0)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent dies (Linux; nothing elsewhere)."""
    if sys.platform == "linux":
        _libc().prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def threads_of_this_user() -> int:
    """Threads that RLIMIT_NPROC counts against this user now; 0 where /proc does not tell."""
    count, user = 0, os.getuid()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if folder.stat().st_uid == user:
                count += sum(1 for _ in (folder / "task").iterdir())
    return count
