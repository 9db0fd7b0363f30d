"""`ackademy doctor`: this machine, a line a fact, with what it means and what mends it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from dataclasses import asdict

from autograder import __version__
from autograder.cli import findings
from autograder.cli.findings import FAULT, GOOD, NOTE, Finding
from autograder.cli.output import Out

FORMAT = "ackademy-doctor-1"
"""The name of the JSON form. It changes when a reader of the old one would be misled."""

_MARKS = {GOOD: ("✓", "green"), NOTE: ("-", "yellow"), FAULT: ("✗", "red")}
_OUR_FAULT = 3


def doctor(*, as_json: bool) -> int:
    """Say all there is to say; the exit code: 0, or 3 if a fault keeps checks from working."""
    found: list[Finding] = []
    if as_json:
        found.extend(findings.all_findings())
        said = {"format": FORMAT, "version": __version__, "findings": [asdict(f) for f in found]}
        json.dump(said, sys.stdout, indent=1)
        print()
    else:
        console = Out()
        for finding in findings.all_findings():
            _show(console, finding, new_area=not found or found[-1].area != finding.area)
            found.append(finding)
        console.tell(f"\n{_summary(found)}", style="bold")
    return _OUR_FAULT if any(finding.state == FAULT for finding in found) else 0


def _show(console: Out, finding: Finding, *, new_area: bool) -> None:
    mark, style = _MARKS[finding.state]
    if new_area:
        console.print(f"\n{finding.area}", style="bold", markup=False)
    console.tell(f"{mark} {finding.name}: {finding.says}", style="" if mark == "✓" else style)
    console.tell(f"    {finding.means}", style="dim")
    if finding.command:
        console.tell(f"    to mend it: {finding.command}")


def _summary(found: Iterable[Finding]) -> str:
    faults = [finding for finding in found if finding.state == FAULT]
    if faults:
        names = ", ".join(finding.name for finding in faults)
        return f"Checks cannot work here: {names}.\nNext: {faults[0].command or 'ackademy doctor'}"
    return "Checks can work here.\nNext: ackademy check"
