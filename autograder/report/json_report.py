"""A grade as JSON: versioned, complete but for the histories, described by `grade.schema.json`.

The schema's name changes when a reader of the old one would be misled; fields may be added to
objects only together with a new version, since the schema admits no others.
"""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any

from autograder.model import Event, Exercise, Grade, History, Result, as_json
from autograder.report.files import write_text
from autograder.report.plain import capped
from autograder.report.words import not_judged, submission_path

SCHEMA = "ackademy-grade/1"
_TEXT_LIMIT = 100_000  # characters: what a subject printed or raised


def to_json(grade: Grade) -> dict[str, Any]:
    """The grade as plain JSON data.

    Paths are relative to the course where it contains them. Texts of students are as they were,
    control characters and all, only capped: whoever shows them must escape them.
    """
    return {
        "schema": SCHEMA,
        "status": str(grade.status),
        "complete": grade.complete,
        "points": grade.points,
        "points_possible": grade.points_possible,
        "exercise": _exercise(grade.exercise),
        "submission": {"path": submission_path(grade), "sha256": grade.submission_sha256},
        "environment": {
            "engine": grade.engine,
            "provider": grade.provider,
            "broker_version": grade.broker_version,
            "isolation": grade.isolation,
            "versions": dict(grade.versions),
        },
        "seeds": list(grade.seeds),
        "started_at": grade.started_at,
        "duration_s": grade.duration_s,
        "notices": list(grade.notices),
        "problem": as_json(grade.problem),
        "results": [_result(each) for each in grade.results],
        "not_judged": list(not_judged(grade)),
        "output": capped(grade.output, _TEXT_LIMIT),
    }


def write(grade: Grade, path: Path) -> None:
    """Write the grade, whole or not at all. Raises `UsageError` or `GraderError` if that fails."""
    write_text(path, json.dumps(to_json(grade), indent=2, ensure_ascii=False) + "\n")


def schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) that `to_json` keeps."""
    text = resources.files("autograder.report").joinpath("grade.schema.json").read_text("utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def _exercise(exercise: Exercise) -> dict[str, Any]:
    return {
        "path": exercise.path,
        "title": exercise.title,
        "kind": exercise.kind,
        "module": exercise.module,
        "function": exercise.function,
        "engines": list(exercise.engines),
        "timeout_s": exercise.timeout_s,
        "points": dict(exercise.points),
    }


def _result(result: Result) -> dict[str, Any]:
    verdict = result.verdict
    return {
        "guarantee": result.guarantee,
        "sentence": result.sentence,
        "status": str(verdict.status),
        "points": result.points,
        "awarded": result.awarded,
        "observed": verdict.observed,
        "slip": verdict.slip,
        "witness": [_event(event) for event in verdict.witness],
        "histories": result.histories,
        "test": result.test,
        "seed": result.seed,
        "replay": result.replay,
        "run": _run(result.history),
    }


def _event(event: Event) -> dict[str, Any]:
    data: dict[str, Any] = as_json(event)
    data["detail"] = capped(event.detail, _TEXT_LIMIT)
    return data


def _run(history: History | None) -> dict[str, Any] | None:
    """What is kept of a history: its size and what the broker said at its end."""
    if history is None:
        return None
    return {
        "workers": history.workers,
        "events": len(history.events),
        "truncated": history.truncated,
        "broker": as_json(history.broker),
    }
