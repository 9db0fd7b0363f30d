"""The wall that Landlock is not: system calls a student's process has no business with.

Landlock knows files, TCP ports and signals. A process behind it can still send datagrams, connect to
a unix socket by its path (a container engine listens on one), open an io_uring, or change the limits
and priorities of other processes of the same user, and the modes and times of its files. A seccomp filter refuses these with EPERM; all
else passes. The filter is a classic BPF program over the number and the arguments of each call:
https://docs.kernel.org/userspace-api/seccomp_filter.html. It knows two architectures; on others the
other walls have to do.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_PR_SET_SECCOMP, _PR_GET_SECCOMP, _FILTER = 22, 21, 2
_PR_SET_NO_NEW_PRIVS, _PR_CAPBSET_DROP = 38, 24
_CAPABILITY_VERSION = 0x20080522
_KEPT_CAPABILITIES = (1 << 1) | (1 << 2)  # root reads its own course in another user's folder

# <linux/audit.h>: how the kernel names the architecture that a call was made in
_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_X32 = 0x40000000  # added to the numbers of the x32 interface, which shares x86_64's name

_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | errno.EPERM
_UNKNOWN = 0x00050000 | errno.ENOSYS  # for a call with an older one that callers then take
_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _AND, _RETURN = 0x20, 0x15, 0x35, 0x54, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16  # offsets in struct seccomp_data

_INET, _INET6, _UNIX = 2, 10, 1
_STREAM, _DATAGRAM, _KIND = 1, 2, 0xF  # flags for the new descriptor are or-ed to a socket's kind
_TCP, _UDP = 6, 17
_FAST_OPEN = 0x20000000  # MSG_FASTOPEN: connect and send in one
_NEW_NAMESPACES = 0x7E020000  # CLONE_NEW*
_NONE = -1  # this architecture never had the call

Instruction = tuple[int, int, int, int]


@dataclass(frozen=True)
class _Argument:
    """An argument of a call, counted from 0, and the values it may have.

    All are C ints: the kernel looks at the lower half of the register only, so this does, too.
    """

    number: int
    values: Sequence[int]
    mask: int = 0xFFFFFFFF


_OWN = (0,)  # as a process id: the calling process

# Numbers on x86_64 and on aarch64 (asm/unistd_64.h, asm-generic/unistd.h), and what is let through.
_CALLS: Sequence[tuple[str, tuple[int, int], Sequence[_Argument]]] = (
    # What of a socket pair is no stream could be connected anew, to a path.
    ("socketpair", (53, 199), (_Argument(0, (_UNIX,)), _Argument(1, (_STREAM,), _KIND))),
    # Limits, priorities and processors of others: one word to the examiner stops it.
    ("prlimit64", (302, 261), (_Argument(0, _OWN),)),
    ("setpriority", (141, 140), (_Argument(0, (0,)), _Argument(1, _OWN))),
    ("ioprio_set", (251, 30), (_Argument(0, (1,)), _Argument(1, _OWN))),
    ("sched_setparam", (142, 118), (_Argument(0, _OWN),)),
    ("sched_setscheduler", (144, 119), (_Argument(0, _OWN),)),
    ("sched_setaffinity", (203, 122), (_Argument(0, _OWN),)),
    ("sched_setattr", (314, 274), (_Argument(0, _OWN),)),
    # Ways around the filter and around Landlock, and into other processes.
    ("io_uring_setup", (425, 425), ()),
    ("ptrace", (101, 117), ()),
    ("process_vm_readv", (310, 270), ()),
    ("process_vm_writev", (311, 271), ()),
    ("pidfd_getfd", (438, 438), ()),
    ("userfaultfd", (323, 282), ()),
    ("bpf", (321, 280), ()),
    ("perf_event_open", (298, 241), ()),
    ("unshare", (272, 97), ()),
    ("setns", (308, 268), ()),
    ("clone", (56, 220), (_Argument(0, (0,), _NEW_NAMESPACES),)),
    # A connection without connect(), which is where Landlock looks, and a port without bind().
    ("sendto", (44, 206), (_Argument(3, (0,), _FAST_OPEN),)),
    ("sendmsg", (46, 211), (_Argument(2, (0,), _FAST_OPEN),)),
    ("sendmmsg", (307, 269), (_Argument(3, (0,), _FAST_OPEN),)),
    ("listen", (50, 201), ()),
    # Modes, owners, times and attributes of whatever files the user has: Landlock lets them change.
    ("chmod", (90, _NONE), ()),
    ("fchmod", (91, 52), ()),
    ("fchmodat", (268, 53), ()),
    ("fchmodat2", (452, 452), ()),
    ("chown", (92, _NONE), ()),
    ("fchown", (93, 55), ()),
    ("lchown", (94, _NONE), ()),
    ("fchownat", (260, 54), ()),
    ("utime", (132, _NONE), ()),
    ("utimes", (235, _NONE), ()),
    ("futimesat", (261, _NONE), ()),
    ("utimensat", (280, 88), ()),
    ("setxattr", (188, 5), ()),
    ("lsetxattr", (189, 6), ()),
    ("fsetxattr", (190, 7), ()),
    ("setxattrat", (463, 463), ()),
    ("removexattr", (197, 14), ()),
    ("lremovexattr", (198, 15), ()),
    ("fremovexattr", (199, 16), ()),
    ("removexattrat", (466, 466), ()),
    # What outlives a process and belongs to no folder: a note from one run to the next.
    ("shmget", (29, 194), ()),
    ("msgget", (68, 186), ()),
    ("semget", (64, 190), ()),
    ("mq_open", (240, 180), ()),
    ("add_key", (248, 217), ()),
    ("request_key", (249, 218), ()),
    ("keyctl", (250, 219), ()),
)
_SOCKET = (41, 198)
_CLONE3 = 435  # its flags lie in memory, where a filter cannot look


def available() -> bool:
    """Whether this system has filters, and this module a table for its architecture."""
    if sys.platform != "linux" or platform.machine() not in _ARCHITECTURES:
        return False
    return bool(ctypes.CDLL(None).prctl(_PR_GET_SECCOMP, 0, 0, 0, 0) >= 0)


def refuse(*, names: bool) -> None:
    """Refuse these calls to this process and all it starts, for good.

    `names` lets datagrams through: a broker that is known by a name has to be looked up. Raises
    `OSError` if the kernel does not take the filter.
    """
    program = b"".join(
        struct.pack("=HBBI", *each) for each in _program(platform.machine(), names=names)
    )
    code = ctypes.create_string_buffer(program)
    filter_ = struct.pack("@HP", len(program) // 8, ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if libc.prctl(_PR_SET_SECCOMP, _FILTER, ctypes.c_char_p(filter_), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def drop_capabilities() -> None:
    """Make root's process as weak as anybody's, but for reading files where Landlock lets it."""
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in range(64):
        if not (1 << capability) & _KEPT_CAPABILITIES:
            libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)  # fails for those there are not
    header = struct.pack("=Ii", _CAPABILITY_VERSION, 0)
    kept = struct.pack("=6I", _KEPT_CAPABILITIES, _KEPT_CAPABILITIES, 0, 0, 0, 0)
    if os.geteuid() == 0 and libc.capset(header, kept) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _program(machine: str, *, names: bool) -> list[Instruction]:
    """The filter: one block per call, each ending in a verdict; what no block is for may pass."""
    column, architecture = _ARCHITECTURES[machine]
    kinds, protocols = [_STREAM], [0, _TCP]
    if names:
        kinds, protocols = [_STREAM, _DATAGRAM], [0, _TCP, _UDP]
    socket = (
        _Argument(0, (_INET, _INET6)),
        _Argument(1, kinds, _KIND),
        _Argument(2, protocols),
    )
    program: list[Instruction] = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_JUMP_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _REFUSE),
        (_LOAD, 0, 0, _NUMBER),
        (_JUMP_AT_LEAST, 0, 1, _X32),
        (_RETURN, 0, 0, _REFUSE),
        (_JUMP_EQUAL, 0, 1, _CLONE3),
        (_RETURN, 0, 0, _UNKNOWN),
    ]
    for numbers, arguments in [(_SOCKET, socket), *((each[1], each[2]) for each in _CALLS)]:
        if numbers[column] != _NONE:
            block = list(_block(arguments))
            program += [(_JUMP_EQUAL, 0, len(block), numbers[column]), *block]
    return [*program, (_RETURN, 0, 0, _ALLOW)]


def _block(arguments: Sequence[_Argument]) -> Iterator[Instruction]:
    """Let a call through if every argument has one of its values; without arguments, never."""
    if arguments:
        for each in arguments:
            yield _LOAD, 0, 0, _FIRST_ARGUMENT + 8 * each.number
            yield _AND, 0, 0, each.mask
            for left in range(len(each.values), 0, -1):  # jump over the others, and the refusal
                yield _JUMP_EQUAL, left, 0, each.values[-left] & each.mask
            yield _RETURN, 0, 0, _REFUSE
        yield _RETURN, 0, 0, _ALLOW
    else:
        yield _RETURN, 0, 0, _REFUSE
