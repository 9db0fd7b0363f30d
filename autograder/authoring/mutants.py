"""Mutants: realistic wrong solutions, kept as patches in the form of a commit message.

The subject names the misconception, the body its consequence, the trailer `Caught-by:` the
guarantees that must fail, then comes the diff against the reference. A few lines show exactly the
mistake, nothing is written twice, and a reference that moves makes its patches fail loudly.

A second trailer, `Only-on: ENGINE (why)`, is for a mistake that shows on one engine alone. A third,
`Differs: GUARANTEE (why)`, names a verdict that may be another in the simulation than on a broker.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from autograder.model import GraderError, UsageError

_TRAILER = re.compile(r"Caught-by:\s*(.*)", re.IGNORECASE)
_ONLY = re.compile(r"Only-on:\s*(\w*)\s*(?:\((.+)\))?", re.IGNORECASE)
_DIFFERS = re.compile(r"Differs:\s*(\w*)\s*(?:\((.+)\))?", re.IGNORECASE)
_DIFF = re.compile(r"(diff --git |--- \S)")
_NEW_FILE = re.compile(r"\+\+\+ (?:b/)?([^\t\n]+)")


@dataclass(frozen=True)
class Mutant:
    """One patch, read: `caught_by` holds the guarantees that must fail, on every engine.

    With `only_on` they must fail on this one, and no other engine is asked.
    """

    patch: Path
    subject: str
    body: str
    caught_by: tuple[str, ...]
    target: str  # the path the diff changes, without its `b/`
    only_on: str = ""
    differs: Mapping[str, str] = field(default_factory=dict)  # guarantee -> why

    @property
    def name(self) -> str:
        """The file's stem: what reports call it."""
        return self.patch.stem


def parse(patch: Path) -> Mutant:
    """Read a mutant. Raises `UsageError` saying which part is missing and what it is for."""
    try:
        text = patch.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise _unusable(patch, f"cannot be read: {error}") from error
    message, diff = _split(text)
    trailer = (_TRAILER, _ONLY, _DIFFERS)
    paragraphs = [line for line in message if not any(each.match(line) for each in trailer)]
    differs = {match[1]: match[2] for line in message if (match := _DIFFERS.match(line))}
    only = [match for line in message if (match := _ONLY.match(line))]
    trailers = [match[1] for line in message if (match := _TRAILER.match(line))]
    caught_by = tuple(name for line in trailers for name in re.split(r"[,\s]+", line) if name)
    subject, _, body = "\n".join(paragraphs).strip().partition("\n")
    targets = _NEW_FILE.findall("\n".join(diff))
    if not diff or not targets:
        raise _unusable(patch, "holds no diff against the reference")
    if len(targets) > 1:
        raise _unusable(patch, f"changes {len(targets)} files; a mutant changes the module alone")
    if not subject:
        raise _unusable(patch, "has no subject: its first line names the misconception")
    if not body.strip():
        raise _unusable(patch, "has no body: say what the mistake does to messages")
    if not caught_by:
        raise _unusable(patch, "has no `Caught-by:` trailer: name the guarantee that must fail")
    if only and not (only[0][1] and only[0][2]):
        raise _unusable(
            patch, "says `Only-on:` without an engine, or without the reason in brackets"
        )
    if not all(name and why for name, why in differs.items()):
        raise _unusable(
            patch, "says `Differs:` without a guarantee, or without the reason in brackets"
        )
    only_on = only[0][1] if only else ""
    return Mutant(patch, subject.strip(), body.strip(), caught_by, targets[0], only_on, differs)


def apply(mutant: Mutant, reference: Path, folder: Path) -> Path:
    """Make the wrong solution in `folder`, an empty one, and return its path.

    Raises `UsageError` when the patch does not fit the reference as it stands, `GraderError`
    when there is no git.
    """
    target = PurePosixPath(mutant.target)
    if target.name != reference.name or target.is_absolute() or ".." in target.parts:
        raise _unusable(mutant.patch, f"changes {mutant.target}, not {reference.name}")
    copy = folder / target
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy.write_bytes(reference.read_bytes())
    # Neither a repository around the folder nor a person's settings may decide what applies.
    env = {
        **os.environ,
        "GIT_CEILING_DIRECTORIES": str(folder.resolve().parent),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
    }
    command = ["git", "apply", "--whitespace=nowarn", str(mutant.patch.resolve())]
    try:
        done = subprocess.run(
            command, cwd=folder, env=env, capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        raise GraderError(
            "git is not installed, and mutants are applied with it.", next_command="git --version"
        ) from None
    if done.returncode:
        why = done.stderr.strip().splitlines()[-1:] or ["git apply failed"]
        raise _unusable(mutant.patch, f"does not apply to {reference.name}: {why[0]}")
    if copy.read_bytes() == reference.read_bytes():
        raise _unusable(mutant.patch, f"leaves {reference.name} as it is")
    return copy


def _split(text: str) -> tuple[list[str], list[str]]:
    """A patch's message and its diff, as lines."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if _DIFF.match(line) or line.rstrip() == "---":
            return lines[:number], lines[number:]
    return lines, []


def _unusable(patch: Path, sentence: str) -> UsageError:
    return UsageError(
        f"{patch.name} {sentence}.", next_command=f"git apply --check --verbose {patch}"
    )
