from __future__ import annotations

import json
import os
import threading
from dataclasses import fields

import jsonschema
import pytest

from autograder.model import Event, Grade, Kind, Result, Verdict
from autograder.report import json_report
from autograder.tests.report import samples
from autograder.tests.report.test_terminal import ALL

VALIDATOR = jsonschema.Draft202012Validator(json_report.schema())


def test_the_schema_is_one():
    jsonschema.Draft202012Validator.check_schema(json_report.schema())


def objects(schema):
    if isinstance(schema, dict):
        if schema.get("type") == "object":
            yield schema
        for each in schema.values():
            yield from objects(each)
    elif isinstance(schema, list):
        for each in schema:
            yield from objects(each)


def test_the_schema_is_closed_and_explains_every_field():
    for each in objects(json_report.schema()):
        assert "additionalProperties" in each
        for name, field in each.get("properties", {}).items():
            assert "description" in field or "$ref" in field, name
            assert name in each["required"]


@pytest.mark.parametrize("make", ALL)
def test_every_grade_keeps_the_schema_also_on_disk(make, tmp_path):
    grade = make()
    path = tmp_path / "grade.json"
    json_report.write(grade, path)
    data = json.loads(path.read_bytes())
    VALIDATOR.validate(data)
    assert data == json_report.to_json(grade)


def test_what_is_not_in_the_schema_is_refused():
    data = json_report.to_json(samples.mixed())
    data["results"][0]["history"] = []
    with pytest.raises(jsonschema.ValidationError):
        VALIDATOR.validate(data)


def test_the_schema_knows_every_kind_of_event():
    kinds = json_report.schema()["$defs"]["event"]["properties"]["kind"]["enum"]
    assert kinds == [str(kind) for kind in Kind]


def test_nothing_of_a_grade_is_missing():
    """A field added to the model must be added here, too, or be named as left out."""
    data = json_report.to_json(samples.mixed())
    elsewhere = {
        "submission_sha256",
        "engine",
        "provider",
        "broker_version",
        "isolation",
        "versions",
    }
    assert {field.name for field in fields(Grade)} - elsewhere <= set(data)
    result = data["results"][1]
    assert {field.name for field in fields(Result)} - {"verdict", "history"} <= set(result)
    assert {field.name for field in fields(Verdict)} <= set(result)
    assert {field.name for field in fields(Event)} == set(result["witness"][0])


def test_the_figures():
    data = json_report.to_json(samples.mixed())
    assert (data["status"], data["points"], data["points_possible"]) == ("fail", 9, 20)
    result = data["results"][1]
    assert (result["status"], result["awarded"], result["seed"]) == ("fail", 0, 2)
    assert [event["kind"] for event in result["witness"]] == ["taken", "ack", "started", "fault"]
    assert result["run"]["broker"]["settled"] == 40


def test_no_path_of_this_machine_where_a_relative_one_serves():
    text = json.dumps(json_report.to_json(samples.mixed()))
    assert "/course" not in text
    assert '"exercises/03_concurrency/01_worker_pool/worker_pool.py"' in text


def test_an_interrupted_grade_says_what_is_missing():
    data = json_report.to_json(samples.interrupted())
    assert data["complete"] is False
    assert data["status"] == "inconclusive"
    assert len(data["not_judged"]) == 6


def test_output_is_capped():
    assert len(json_report.to_json(samples.hostile())["output"]) < 101_000


def test_unicode_stays_readable(tmp_path):
    verdict = Verdict(samples.failed("").status, "ключ 日本語 🎉")
    path = tmp_path / "grade.json"
    json_report.write(samples.grade(samples.result("pool_is_used", verdict)), path)
    assert "ключ 日本語 🎉" in path.read_text(encoding="utf-8")


def test_a_pipe_is_written_to_and_not_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
    reader.start()
    json_report.write(samples.mixed(), pipe)
    reader.join(timeout=30)
    assert json.loads(read[0])["status"] == "fail"
    assert pipe.is_fifo()
