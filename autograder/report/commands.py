"""Commands as the person in front of this terminal can type them.

Everything of ours says `ackademy ...`. Who runs it out of an environment that is not activated has
no such command: for them it is `uv run ackademy ...`. Programs that read JSON get the plain one.
"""

from __future__ import annotations

import os
import re
import shutil
from functools import cache

_OURS = re.compile(
    r"(?<![\w/.`-])(?<!uv run )(?<!--group docs )ackademy(?= (?:author|brokers|check|docs|doctor|hint|lesson|list|replay)\b)"
)


def typed(text: str) -> str:
    """A command, or a text with commands in it, with the prefix that works here."""
    return _OURS.sub(program(), text)


@cache
def program() -> str:
    """`ackademy`, or `uv run ackademy` under `uv run` and where PATH has no such command.

    `uv run` sets UV_RUN_RECURSION_DEPTH (its environment reference), and puts the environment in
    front of PATH for its child alone: finding the command there says nothing about the shell.
    """
    if os.environ.get("UV_RUN_RECURSION_DEPTH") or shutil.which("ackademy") is None:
        return "uv run ackademy"
    return "ackademy"
