"""What a lesson's file may hold, and how a fault in it is named."""

from __future__ import annotations

import pytest

pytest.importorskip("jupytext", reason="the site's tools are the group `docs`")

from autograder.model import UsageError
from autograder.site import notebooks

HEAD = "---\ntitle: T\n---\n\n"


@pytest.fixture
def page(tmp_path):
    def page(text: str):
        file = tmp_path / "lesson.md"
        file.write_text(text, encoding="utf-8")
        return notebooks.read(file, tmp_path)

    return page


def test_cells_keep_their_order_and_know_their_lines(page):
    read = page(
        HEAD + 'Prose.\n\n```python\na = 1\n```\n\nMore.\n\n```python tags=["fold"]\nb = 2\n```\n'
    )
    assert [cell.cell_type for cell in read.cells.cells] == ["markdown", "code", "markdown", "code"]
    assert read.lines == (5, 8, 11, 14)
    assert read.front == {"title": "T"}
    assert read.cells.cells[3].metadata["tags"] == ["fold"]


@pytest.mark.parametrize(
    ("text", "where", "said"),
    [
        ("Only prose.\n", ":1:", "nothing on this page would be executed"),
        (
            "```python\na = 1\n```\n\n!!! note\n\n    ```python\n    b = 2\n    ```\n",
            ":11:",
            "no cell",
        ),
        ("```python\na = 1\n```\n\n```bash\nls\n```\n", ":10:", "use `console`"),
        ('```python tags=["hidden"]\na = 1\n```\n', ":6:", "no such tag: hidden"),
    ],
)
def test_what_would_be_shown_without_being_executed_is_refused(page, text, where, said):
    with pytest.raises(UsageError) as refused:
        page(HEAD + text)
    assert where in refused.value.sentence
    assert said in refused.value.sentence
    assert refused.value.next_command == notebooks.BUILD


def test_a_lesson_says_what_lists_need(page):
    read = page(HEAD + "```python\na = 1\n```\n")
    with pytest.raises(UsageError, match=r"lesson.md:1: the front matter lacks `description`"):
        notebooks.check_lesson(read)


def test_front_matter_that_is_no_yaml_is_named(page):
    with pytest.raises(UsageError, match="no YAML"):
        page("---\ntitle: [\n---\n\n```python\n1\n```\n")
