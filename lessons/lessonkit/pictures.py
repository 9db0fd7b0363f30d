"""What a cell shows beside text: timelines, plots, and numbers for the prose around it.

Every picture brings a title, a description and a caption, and takes its colours from the custom
properties that the report's pictures use, so that a page in light or dark decides once for all.
"""

from __future__ import annotations

import io
import itertools
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from html import escape
from typing import Any

from IPython.display import HTML, display

from autograder.model import History, Verdict
from autograder.report import svg
from autograder.report.excerpt import draw
from autograder.report.timeline import Layout, lay_out

FACTS = "application/vnd.ackademy.facts+json"
"""The type of an output that carries numbers for the page's prose, and is not shown."""

_names = itertools.count(1)
_LEGEND = (
    "Time runs downward, one event a row. Thin line: message in hand. Broad bar: handler at work."
)


def facts(**values: str | float) -> None:
    """Give numbers to the prose: `{{ name }}` in the lesson's text becomes the value.

    Format them here; a page shows what it is given.
    """
    said = {
        name: value if isinstance(value, str) else f"{value:,}" for name, value in values.items()
    }
    display({FACTS: said}, raw=True)


def timeline(
    history: History,
    messages: Collection[str] = (),
    *,
    caption: str,
    verdict: Verdict | None = None,
    rows: int = 16,
) -> None:
    """Draw these messages' events and the run's last, or what a verdict rests on, as the report does.

    Without messages all events are drawn.
    """
    if verdict is not None:
        layout = draw(verdict, history, rows=rows)
    else:
        told = set(messages) or {each.message for each in history.events}
        wanted = [at for at, each in enumerate(history.events) if each.message in told]
        shown = {*wanted[:rows], len(history.events) - 1}  # what is still open at the end shows it
        events = history.events
        if len({events[at].key for at in wanted}) == 1:  # it goes without saying
            events = tuple(replace(each, key="") for each in events)
        layout = lay_out(events, show=shown)
        # all of it is what there is to see, so nothing stands out and nothing stands back
        layout = replace(layout, rows=tuple(replace(row, witness=True) for row in layout.rows))
    if layout is None:
        raise ValueError("there is nothing to draw: the verdict has no witness")
    show_layout(layout, caption)


def show_layout(layout: Layout, caption: str) -> None:
    """A layout as a figure: a wide and a narrow drawing, and the same as a table behind a fold."""
    name = f"timeline-{next(_names)}"
    wide = svg.svg(layout, name=f"{name}-wide")
    narrow = svg.svg(layout, name=f"{name}-narrow", narrow=True)
    display(
        HTML(
            f'<figure class="ack-figure" id="{name}">'
            f'<div class="ack-wide">{wide}</div><div class="ack-narrow">{narrow}</div>'
            f"<figcaption>{escape(caption)} <small>{_LEGEND}</small></figcaption></figure>"
        )
    )


@contextmanager
def plot(
    *, title: str, caption: str, alt: str, size: tuple[float, float] = (5.2, 3.1)
) -> Iterator[Any]:
    """Axes to draw on; the figure is shown when the block ends. `size` is in inches of 72 px.

    `alt` states the fact that the plot shows, in words, for those who do not see it.
    """
    import matplotlib as mpl  # noqa: PLC0415 - a lesson without a plot does not wait for it
    from matplotlib.figure import Figure  # noqa: PLC0415 - the same

    light = svg.LIGHT
    style: Any = {
        "svg.fonttype": "none",
        "font.family": "sans-serif",
        "font.size": 12,
        "axes.edgecolor": light.muted,
        "axes.labelcolor": light.text,
        "text.color": light.text,
        "xtick.color": light.text,
        "ytick.color": light.text,
        "grid.color": light.line,
        "axes.grid": True,
        "grid.linewidth": 0.8,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "lines.linewidth": 2.2,
        "lines.markersize": 6.5,
    }
    name = f"plot-{next(_names)}"
    with mpl.rc_context({**style, "svg.hashsalt": name}):
        figure = Figure(figsize=size, dpi=72, layout="constrained")
        axes = figure.add_subplot()
        axes.set_axisbelow(True)
        yield axes
        drawn = io.StringIO()
        figure.savefig(drawn, format="svg", transparent=True, metadata={"Date": None})
    picture = _for_both_palettes(drawn.getvalue(), name, title, alt)
    display(
        HTML(
            f'<figure class="ack-figure" id="{name}"><div class="tl ack-plot">{picture}</div>'
            f"<figcaption>{escape(caption)}</figcaption></figure>"
        )
    )


def colours() -> svg.Palette:
    """The colours by meaning, to draw with: each becomes the page's own in light and in dark."""
    return svg.LIGHT


def _for_both_palettes(drawn: str, name: str, title: str, alt: str) -> str:
    """The SVG element alone, described, its ids its own, its colours those of the page."""
    body = drawn[drawn.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    for meaning, colour in asdict(svg.LIGHT).items():
        body = re.sub(re.escape(colour), f"var(--tl-{meaning})", body, flags=re.IGNORECASE)
    body = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', body)
    body = re.sub(r'(xlink:href="#|href="#|url\(#)(?!plot-)', rf"\1{name}-", body)
    body = re.sub(r'font: ([\d.]+)px [^;"]*', r"font-size: \1px", body)
    described = (
        f'role="img" aria-labelledby="{name}-title {name}-desc"><title id="{name}-title">'
        f'{escape(title)}</title><desc id="{name}-desc">{escape(alt)}</desc>'
    )
    return re.sub(r"<svg([^>]*)>", lambda found: f"<svg{found[1]} {described}", body, count=1)
