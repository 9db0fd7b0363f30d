"""From executed cells to a page: titled output, figures, facts in the prose, links."""

from __future__ import annotations

import pytest

pytest.importorskip("nbconvert", reason="the site's tools are the group `docs`")

from nbformat import v4

from autograder.model import UsageError
from autograder.site import links, notebooks, render


@pytest.fixture
def notebook(tmp_path):
    file = tmp_path / "lesson.md"
    file.write_text("---\ntitle: T\n---\n\n```python\n1\n```\n")
    return notebooks.read(file, tmp_path)


def cells(*made, **facts):
    done = v4.new_notebook(cells=list(made))
    done.metadata["language_info"] = {"name": "python"}
    done.metadata["ackademy"] = {"facts": facts, "executed": {}}
    return done


def code(source="a = 1", tags=(), **output):
    outputs = [v4.new_output(**output)] if output else []
    return v4.new_code_cell(source, outputs=outputs, metadata={"tags": list(tags)})


def test_output_cannot_be_taken_for_input(notebook):
    page = render.to_markdown(
        notebook, cells(code("print('<b>')", output_type="stream", text="<b>\n\n2 < 3\n")), {}
    )
    assert "```python\nprint('<b>')\n```" in page
    assert (
        '<p class="ack-label">Output</p><pre tabindex="0"><samp>&lt;b&gt;\n\n2 &lt; 3</samp>'
        in page
    )


def test_code_can_be_folded_hidden_and_marked(notebook):
    page = render.to_markdown(
        notebook,
        cells(code("a = 1", ["fold"]), code("b = 2", ["hide-input"]), code("c = 3\nd = 4  # <-")),
        {},
    )
    assert "<summary>The code behind the next figure</summary>" in page
    assert "b = 2" not in page
    assert '```python hl_lines="2"\nc = 3\nd = 4\n```' in page


def test_numbers_in_prose_come_from_the_run(notebook):
    prose = v4.new_markdown_cell("We made {{ rate }} a second.")
    braces = code("f = '{{ rate }}'")
    page = render.to_markdown(notebook, cells(prose, braces, rate="19"), {})
    assert "We made 19 a second." in page
    assert "f = '{{ rate }}'" in page  # code stays as it is
    with pytest.raises(UsageError, match="no cell gave the fact 'rate'"):
        render.to_markdown(notebook, cells(prose), {})


def test_a_picture_needs_words(notebook, tmp_path):
    prose = cells(v4.new_markdown_cell("![What it shows](a.svg)"))
    (tmp_path / "a.svg").write_text("<svg>\n\n<path/></svg>")
    with pytest.raises(UsageError, match="needs alt text, a <title> and a <desc>"):
        render.to_markdown(notebook, prose, {})
    (tmp_path / "a.svg").write_text("<svg>\n\n<title>T</title><desc>D</desc></svg>")
    page = render.to_markdown(notebook, prose, {})
    assert "<svg> <title>T</title><desc>D</desc></svg>" in page
    assert "<figcaption>What it shows</figcaption>" in page


def test_the_footer_says_what_a_page_was_executed_with():
    stamp = {
        "date": "2030-01-01", "broker": "NATS 2.15", "client": "nats-py 2.16", "python": "3.13.1",
        "system": "Linux x86_64", "cores": "2", "ackademy": "0.1", "commit": "abc",
    }  # fmt: skip
    foot = render.footer(stamp, "lessons/a/b/lesson.md", "0.1")
    for said in ("2030-01-01", "NATS 2.15", "Python 3.13.1", "commit abc", "lessons/a/b/lesson.md"):
        assert said in foot
    assert "Nothing on this page was executed" in render.footer(None, "docs/a.md", "0.1")


def test_links_lead_to_pages_and_to_text(tmp_path):
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__init__.py").write_text("")
    (tmp_path / "docs").mkdir()
    known = links.Links(tmp_path, {"lessons/01_a/01_b/lesson.md": "lessons/a/b.md"})

    def rewritten(text: str) -> str:
        return known.rewrite(text, source="docs/learn/start.md", page="learn/start.md")

    assert (
        rewritten("[the `lesson`](../../lessons/01_a/01_b/lesson.md#here)")
        == "[the `lesson`](../lessons/a/b.md#here)"
    )
    assert rewritten("[port](/pkg)") == "[port](../source/pkg/__init__.py.md)"
    assert known.sources == {"pkg/__init__.py": "source/pkg/__init__.py.md"}
    for same in ("[x](https://example.org/a)", "[x](#here)", "```text\n[x](gone.md)\n```"):
        assert rewritten(same) == same
    with pytest.raises(UsageError, match=r"start.md: the link to gone.md: leads to nothing"):
        rewritten("[x](gone.md)")
    with pytest.raises(UsageError, match="name a file in it"):
        rewritten("[x](/docs)")
