"""Writing a report: whole or not at all, and a sentence a person can act on if it fails."""

from __future__ import annotations

import errno
import os
import secrets
from pathlib import Path

from autograder.model import AckademyError, GraderError, UsageError

_MACHINE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS})


def write_text(path: Path, text: str) -> None:
    """Put `text` into `path` as UTF-8; an older report stays until the new one is complete.

    Something that is not a regular file (`/dev/stdout`, a pipe) is written to directly. A missing
    folder, a folder in place of a file and a missing permission raise `UsageError`, a full or
    broken disk raises `GraderError`.
    """
    data = text.encode("utf-8", "backslashreplace")
    try:
        target = path.resolve()
        if target.exists() and not target.is_file() and not target.is_dir():
            path.write_bytes(data)
        else:
            _replace(target, data)
    except OSError as error:
        raise _explained(path, error) from error


def _replace(target: Path, data: bytes) -> None:
    """Write beside the target, then take its place: `rename` is atomic within one folder."""
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, "Is a directory")
    draft = target.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        with draft.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            draft.chmod(target.stat().st_mode & 0o777)
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)


def _explained(path: Path, error: OSError) -> AckademyError:
    sentence = f"The report could not be written to {path}: {error.strerror or error}."
    if error.errno in _MACHINE:
        return GraderError(sentence, next_command="df -h")
    if error.errno == errno.ENOENT:
        return UsageError(sentence, next_command=f"mkdir -p {path.parent}")
    return UsageError(sentence)
