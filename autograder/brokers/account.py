"""Another account for a server that refuses to run as root: PostgreSQL does, and says so.

In a container one is often root. Then such a server runs as `nobody`, and keeps one right of root's:
to read and write files whatever their mode says (CAP_DAC_OVERRIDE, capabilities(7)), because the
environment and the temporary folder of root are often closed to everybody else.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

# PR_SET_KEEPCAPS is 8, PR_CAP_AMBIENT 47, PR_CAP_AMBIENT_RAISE 2: prctl(2). Without the capability,
# as in a container that was denied it, the server runs as a plain user, and modes decide.
BECOME = """\
def become(account):
    import ctypes, os, struct
    uid, gid = map(int, account.split(":"))
    libc = ctypes.CDLL(None)
    libc.prctl(8, 1, 0, 0, 0)
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    override = 1 << 1
    libc.capset(struct.pack("Ii", 0x20080522, 0), struct.pack("6I", *[override] * 3, 0, 0, 0))
    libc.prctl(47, 2, 1, 0, 0)
"""
"""Source of `become(account)`, for the small programs that run before a server in its process."""

_RUN_AS = f"import os, sys\n{BECOME}become(sys.argv[1])\nos.execv(sys.argv[2], sys.argv[2:])\n"


@dataclass(frozen=True, slots=True)
class Account:
    """A user and a group by number."""

    uid: int
    gid: int

    def __str__(self) -> str:
        return f"{self.uid}:{self.gid}"

    def give(self, *paths: Path) -> None:
        """Make the account the owner of these files."""
        for path in paths:
            os.chown(path, self.uid, self.gid)

    def command(self, command: list[str]) -> list[str]:
        """The same command, run by this account."""
        return [sys.executable, "-I", "-S", "-c", _RUN_AS, str(self), *command]


def needed() -> bool:
    """Whether we are root, so that such a server needs another account."""
    return os.name == "posix" and os.geteuid() == 0


def nobody() -> Account | None:
    """The account without rights that every Linux has; None where there is none to change to."""
    if sys.platform != "linux":
        return None
    import pwd  # noqa: PLC0415 - has no Windows

    try:
        found = pwd.getpwnam("nobody")
    except KeyError:
        return None
    return Account(found.pw_uid, found.pw_gid)
