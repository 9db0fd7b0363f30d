"""A grade as one page: self-contained, without scripts, without a request to anywhere.

Whatever a student could have written is escaped by the template and shown as text (`plain`); a
content security policy on the page forbids everything but its own style, should that ever fail.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from autograder.model import Grade, Kind, Result, Status
from autograder.report import svg, words
from autograder.report.commands import typed
from autograder.report.excerpt import draw
from autograder.report.files import write_text
from autograder.report.plain import capped, plain
from autograder.report.timeline import Layout
from autograder.report.words import NOTHING_ELSE, Asked

_ROWS = 16
_OUTPUT_LIMIT = 60_000
_TRACEBACK_LIMIT = 12_000


@dataclass(frozen=True, slots=True)
class _Picture:
    layout: Layout
    wide: Markup
    narrow: Markup


@dataclass(frozen=True, slots=True)
class _Entry:
    """One guarantee as the template shows it."""

    name: str
    anchor: str
    status: Status
    sentence: str
    score: str
    origin: str
    histories: int
    observed: str
    slip: str
    met: str  # an exception before the failure
    picture: _Picture | None
    traceback: str
    hint: str
    again: str
    broker: str
    unfolded: bool


def page(grade: Grade, asked: Asked = NOTHING_ELSE) -> str:
    """The page's HTML."""
    first = _first_to_read(grade)
    return (
        _environment()
        .get_template("grade.html.j2")
        .render(
            grade=grade,
            entries=[
                _entry(grade, result, number, unfolded=number == first, visible=asked.visible)
                for number, result in enumerate(grade.results)
            ],
            missing=[
                (plain(name), grade.exercise.points[name])
                for name in (() if asked.visible else words.not_judged(grade))
            ],
            headline=words.headline(grade),
            summary=words.summary(grade, asked),
            scored=grade.complete and not asked.visible,
            facts=_facts(grade),
            problem_traceback=plain(
                capped(grade.problem.traceback, _TRACEBACK_LIMIT) if grade.problem else "",
                lines=True,
            ),
            output=plain(capped(grade.output.rstrip(), _OUTPUT_LIMIT), lines=True),
            next_command=typed(words.next_command(grade, asked)),
            style=Markup(svg.style()),  # noqa: S704 - a constant of ours
        )
    )


def write(grade: Grade, path: Path, asked: Asked = NOTHING_ELSE) -> None:
    """Write the page, whole or not at all. Raises `UsageError` or `GraderError` if that fails."""
    write_text(path, page(grade, asked))


def _first_to_read(grade: Grade) -> int:
    """The result that is unfolded: the first failure, else the first without a verdict."""
    for status in (Status.FAIL, Status.INCONCLUSIVE):
        for result in words.causes_first(grade.results):
            if result.verdict.status is status and grade.problem is None:
                return grade.results.index(result)
    return -1


def _entry(grade: Grade, result: Result, number: int, *, unfolded: bool, visible: bool) -> _Entry:
    verdict = result.verdict
    repeated = grade.problem is not None and verdict.observed == grade.problem.sentence
    raised = [each.detail for each in verdict.witness if each.kind is Kind.RUN_RAISED]
    return _Entry(
        name=plain(result.guarantee),
        anchor=f"g{number + 1}",
        status=verdict.status,
        sentence=result.sentence,
        score=words.score(result, complete=grade.complete),
        origin=words.origin(result),
        histories=result.histories,
        observed="" if repeated else verdict.observed,
        slip=verdict.slip,
        met="" if repeated else words.met(result),
        picture=None if repeated else _picture(result, f"t{number + 1}"),
        traceback=plain(capped(raised[0], _TRACEBACK_LIMIT), lines=True) if raised else "",
        hint=typed(words.hint_command(result)) if verdict.status is Status.FAIL else "",
        again=typed(words.check_command(grade, result, visible=visible)),
        broker=_broker(result),
        unfolded=unfolded,
    )


def _picture(result: Result, name: str) -> _Picture | None:
    layout = draw(result.verdict, result.history, rows=_ROWS)
    if layout is None:
        return None
    wide = svg.svg(layout, name=f"{name}w")
    narrow = svg.svg(layout, name=f"{name}n", narrow=True)
    return _Picture(layout, Markup(wide), Markup(narrow))  # noqa: S704 - svg escapes all texts


def _broker(result: Result) -> str:
    """What the broker itself said at the end of the run, as far as it can tell."""
    if result.history is None or result.verdict.status is Status.PASS:
        return ""
    state = result.history.broker
    counts = {
        "waiting": state.waiting,
        "unsettled": state.unsettled,
        "settled": state.settled,
        "redelivered": state.redelivered,
        "among the dead letters": state.dead_letters,
    }
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count >= 0)


def _facts(grade: Grade) -> Mapping[str, str]:
    """The environment, for the table at the end."""
    facts = {
        "Exercise": grade.exercise.path,
        "File": words.submission_path(grade),
        "SHA-256": grade.submission_sha256,
        "Engine": " ".join(filter(None, (grade.engine, grade.broker_version))),
        "Provider": grade.provider,
        "Isolation": grade.isolation,
        "Seeds": ", ".join(map(str, grade.seeds)),
        "Started": grade.started_at,
        "Duration": f"{grade.duration_s:.1f} s",
        **grade.versions,
    }
    return {plain(name): plain(value) for name, value in facts.items() if value}


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("autograder.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(glyph=words.GLYPH, word=words.WORD, long_word=words.LONG_WORD)
    environment.filters.update(plain=plain, sentence=words.sentence, prose=_prose)
    return environment


def _prose(text: str) -> Markup:
    """A sentence whose `names` stand between backquotes, as in the docstrings they come from."""
    parts = words.sentence(text).split("`")
    if len(parts) % 2 == 0:  # a lone backquote is just one
        return escape("`".join(parts))
    name = Markup("<code>{}</code>")
    return Markup("").join(name.format(part) if at % 2 else part for at, part in enumerate(parts))
