"""Executing: once, in a clean kernel, with every fault named by page, cell and line."""

from __future__ import annotations

import pytest

pytest.importorskip("nbclient", reason="the site's tools are the group `docs`")

from nbformat import v4

from autograder.model import UsageError
from autograder.site import execution, normalise, notebooks

HEAD = "---\ntitle: T\nbudget_s: 30\n---\n\n"


@pytest.fixture
def course(tmp_path, monkeypatch):
    """A course with a kit of its own, so that no broker is needed for a footer."""
    kit = tmp_path / "lessons" / "lessonkit"
    kit.mkdir(parents=True)
    (kit / "__init__.py").write_text("")
    (kit / "stamp.py").write_text(
        "from IPython.display import display\n"
        f"def show(): display({{{execution.FACTS!r}: {{'broker': 'none'}}}}, raw=True)\n"
    )
    (tmp_path / "uv.lock").write_text("version = 1\n")
    execution.code_digest.cache_clear()
    yield tmp_path
    execution.code_digest.cache_clear()


@pytest.fixture
def run(course):
    said = []

    def run(text: str):
        file = course / "lesson.md"
        file.write_text(HEAD + text, encoding="utf-8")
        execution.code_digest.cache_clear()
        said.clear()
        done = execution.executed(notebooks.read(file, course), course, said.append)
        return done, len(said) > 0

    return run


@pytest.mark.slow
def test_what_nothing_has_changed_for_is_not_executed_again(run, course):
    text = "```python\nimport os\nprint(os.getpid())\n```\n"
    first, executed = run(text)
    assert executed
    assert execution.is_complete(first)
    again, executed = run(text)
    assert not executed
    assert again.cells[0].outputs == first.cells[0].outputs


def test_outputs_are_kept_for_exactly_what_they_depend_on(course):
    file = course / "lesson.md"

    def key(text="```python\n1\n```\n"):
        file.write_text(HEAD + text)
        execution.code_digest.cache_clear()
        return execution.key(notebooks.read(file, course), course)

    first = key()
    assert key() == first
    seen = {first, key("More.\n\n```python\n1\n```\n")}
    (course / "uv.lock").write_text("version = 2\n")  # another dependency
    seen.add(key())
    (course / "lessons" / "lessonkit" / "more.py").write_text("")  # other code
    seen.add(key())
    (course / "autograder" / "checks").mkdir(parents=True)
    (course / "autograder" / "checks" / "loss.py").write_text("")
    seen.add(key())
    assert len(seen) == 5
    (course / "autograder" / "tests").mkdir()
    (course / "autograder" / "tests" / "test_loss.py").write_text("")  # no kernel sees it
    assert key() in seen


@pytest.mark.slow
def test_facts_and_the_stamp_leave_the_outputs(run):
    done, _ = run(
        "```python\nfrom IPython.display import display\n"
        f"display({{{execution.FACTS!r}: {{'rate': '19'}}}}, raw=True)\nprint('seen')\n```\n"
    )
    assert done.metadata["ackademy"]["facts"] == {"rate": "19"}
    assert done.metadata["ackademy"]["executed"]["broker"] == "none"
    assert [each.output_type for each in done.cells[0].outputs] == ["stream"]
    assert len(done.cells) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("a = 1\nb = a / 0", r"lesson\.md:12: cell 2 raised ZeroDivisionError"),
        (
            "import sys\nprint('careful', file=sys.stderr)",
            r"lesson\.md:11: cell 2 wrote to stderr: careful",
        ),
        ("import os\nos._exit(1)", r"lesson\.md:11: cell 2 ended the kernel"),
    ],
)
def test_a_cell_that_fails_is_named(run, code, said):
    with pytest.raises(UsageError, match=said):
        run(f"```python\nfine = True\n```\n\n```python\n{code}\n```\n")


@pytest.mark.slow
def test_a_page_has_a_time_budget(run, course):
    file = course / "lesson.md"
    file.write_text(
        "---\ntitle: T\nbudget_s: 1\n---\n\n```python\nimport time\ntime.sleep(600)\n```\n"
    )
    with pytest.raises(UsageError, match=r"cell 1 is still running after the page's 1 s"):
        execution.executed(notebooks.read(file, course), course, print)


def test_outputs_lose_what_differs_by_chance(tmp_path):
    cell = v4.new_code_cell(
        outputs=[
            v4.new_output("stream", text="\x1b[1mup at 127.0.0.1:40123\x1b[0m, order-0007-a1b2c3"),
            v4.new_output(
                "display_data", {"text/plain": f"<X at 0x7f00aa11> {tmp_path}/a.py 12.5 s"}
            ),
        ]
    )
    normalise.outputs(cell, tmp_path)
    assert cell.outputs[0].text == "up at 127.0.0.1:PORT, order-0007"
    assert cell.outputs[1].data["text/plain"] == "<X at 0x...> a.py 12.5 s"
