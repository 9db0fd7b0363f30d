"""An executed notebook as Markdown for MkDocs: cells, their outputs as figures and titled blocks."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nbconvert import MarkdownExporter

from autograder.site.notebooks import Notebook, wrong

if TYPE_CHECKING:
    from nbformat import NotebookNode

_TEMPLATE = """
{%- extends 'markdown/index.md.j2' -%}
{% block input %}
{%- set tags = cell.metadata.get('tags', []) -%}
{% if 'hide-input' not in tags %}
{% if 'fold' in tags %}
<details class="ack-code" markdown="1">
<summary>The code behind the next figure</summary>

{% endif %}
{{ cell.source | code }}
{% if 'fold' in tags %}

</details>
{% endif %}
{% endif %}
{% endblock input %}
{% block stream %}{{ output.text | block }}{% endblock stream %}
{% block data_text scoped %}{{ output.data['text/plain'] | block }}{% endblock data_text %}
{% block data_html scoped %}
{{ output.data['text/html'] | one_line }}
{% endblock data_html %}
{% block error %}{{ (output.ename + ': ' + output.evalue) | block }}{% endblock error %}
"""
_JUPYTER = "PYTHONPATH=lessons uv run --group docs --with jupyterlab jupyter lab"
MARK = "# <-"
_FACT = re.compile(r"\{\{\s*(\w+)\s*\}\}")
_PICTURE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+\.svg)\)")


def to_markdown(notebook: Notebook, cells: NotebookNode, more_facts: Mapping[str, str]) -> str:
    """The page's Markdown. Raises `UsageError` for a fact nobody gave and a picture without words."""
    facts = {**more_facts, **cells.metadata["ackademy"]["facts"]}
    body = _exporter().from_notebook_node(cells)[0]
    body = _outside_code(body, lambda text: filled(text, facts, notebook.name))
    return _outside_code(body, lambda text: _with_pictures(text, notebook))


def filled(text: str, facts: Mapping[str, str], where: str) -> str:
    """Text with `{{ name }}` replaced by its fact. Raises `UsageError` for a name without one."""

    def fact(found: re.Match[str]) -> str:
        if found[1] not in facts:
            known = ", ".join(sorted(facts)) or "none"
            raise wrong(where, f"no cell gave the fact {found[1]!r}; there are: {known}.")
        return facts[found[1]]

    return _FACT.sub(fact, text)


def _outside_code(body: str, change: Callable[[str], str]) -> str:
    """Apply `change` to prose alone: what stands between fences is code and stays as it is."""
    parts = re.split(r"(^```.*?^```$)", body, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if at % 2 else change(part) for at, part in enumerate(parts))


def _with_pictures(text: str, notebook: Notebook) -> str:
    """Pictures of our own go into the page itself: there they take its colours, light or dark."""

    def picture(found: re.Match[str]) -> str:
        alt, target = found[1], found[2]
        where = f"{notebook.name} ({target})"
        file = notebook.file.parent / target
        if not file.is_file():
            raise wrong(where, "there is no such picture.")
        drawn = file.read_text(encoding="utf-8")
        if not alt or "<title" not in drawn or "<desc" not in drawn:
            raise wrong(where, "a picture needs alt text, a <title> and a <desc>.")
        return (
            f'<figure class="ack-figure"><div class="tl ack-drawing">{one_line(drawn)}</div>'
            f"<figcaption>{escape(alt, quote=False)}</figcaption></figure>"
        )

    return _PICTURE.sub(picture, text)


def _exporter() -> MarkdownExporter:
    exporter: Any = MarkdownExporter(raw_template=_TEMPLATE)
    exporter.register_filter("block", block)
    exporter.register_filter("code", code)
    exporter.register_filter("one_line", one_line)
    return exporter


def code(source: str) -> str:
    """A cell's code; lines that end in `# <-` are what changed since the cell before: marked."""
    lines = source.splitlines()
    marked = [str(number) for number, line in enumerate(lines, 1) if line.endswith(MARK)]
    said = f' hl_lines="{" ".join(marked)}"' if marked else ""
    text = "\n".join(line.removesuffix(MARK).rstrip() for line in lines)
    return f"```python{said}\n{text}\n```"


def block(text: str) -> str:
    """Output as a titled block that cannot be taken for input."""
    return (
        '\n<div class="ack-output"><p class="ack-label">Output</p>'
        f'<pre tabindex="0"><samp>{escape(text.rstrip(), quote=False)}</samp></pre></div>\n'
    )


def one_line(html: str) -> str:
    """HTML that Markdown leaves alone: a blank line would end it."""
    return re.sub(r"\s*\n\s*", " ", html.strip())


def download(
    cells: NotebookNode, notebook: Notebook, more_facts: Mapping[str, str]
) -> NotebookNode:
    """The executed notebook as people get it: with its title, without our bookkeeping."""
    import nbformat  # noqa: PLC0415 - by name, for `from_dict` makes a deep copy

    copy = nbformat.from_dict(dict(cells))
    given = {**more_facts, **copy.metadata.pop("ackademy", {}).get("facts", {})}
    for cell in copy.cells:
        if cell.cell_type == "markdown":
            cell.source = _FACT.sub(lambda found: str(given.get(found[1], found[0])), cell.source)
            cell.source = _PICTURE.sub(r"*Picture: \1*", cell.source)
    head = f"# {notebook.front['title']}\n\nTo run it, in the folder of the course: `{_JUPYTER}`"
    copy.cells.insert(0, nbformat.v4.new_markdown_cell(head))
    return copy


def footer(stamp: Mapping[str, str] | None, source: Path | str, version: str) -> str:
    """The line under a page: what it was executed with, or that nothing on it was."""
    if stamp is None:
        said = f"Ackademy {version}. Nothing on this page was executed."
    else:
        at = f", commit {stamp['commit']}" if stamp.get("commit") else ""
        said = (
            f"Executed {stamp['date']} on {stamp['broker']}, {stamp['client']}, Python "
            f"{stamp['python']}, {stamp['system']} with {stamp['cores']} cores; "
            f"Ackademy {stamp['ackademy']}{at}."
        )
    return f'<p class="ack-executed">{escape(said)} Source: <code>{escape(str(source))}</code></p>'
