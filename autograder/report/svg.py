"""A layout drawn as SVG: by hand, in one piece, readable without colour and without a network.

Every kind of event has a shape of its own beside its colour and is named in words in its row.
Colours are CSS custom properties, so that a page in light or dark decides once for all pictures.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import dataclass, fields
from html import escape

from rich.cells import cell_len

from autograder.model import Kind
from autograder.report.timeline import Bar, Ending, Lane, Layout, Row


@dataclass(frozen=True, slots=True)
class Palette:
    """Colours by meaning. The defaults build on Okabe and Ito's, darkened for text on white."""

    text: str = "#1b2330"
    muted: str = "#5b6675"
    line: str = "#c9d0d9"
    band: str = "#fdf1dc"
    work: str = "#0072b2"
    hand: str = "#8fa0b3"
    good: str = "#007a58"
    bad: str = "#b84300"
    examiner: str = "#7b3f8c"
    ground: str = "#ffffff"


LIGHT = Palette()
DARK = Palette(
    text="#e6eaf0",
    muted="#9fabba",
    line="#3a4452",
    band="#3a2f1c",
    work="#56b4e9",
    hand="#75869b",
    good="#3fcf9f",
    bad="#ff9457",
    examiner="#d79be6",
    ground="#161b22",
)


def properties(palette: Palette) -> str:
    """The palette as CSS declarations `--tl-...`."""
    return "".join(f"--tl-{each.name}:{getattr(palette, each.name)};" for each in fields(palette))


def style(light: Palette = LIGHT, dark: Palette = DARK) -> str:
    """The style sheet every picture needs, once per page."""
    return (
        f".tl{{{properties(light)}}}"
        f"@media (prefers-color-scheme:dark){{.tl{{{properties(dark)}}}}}" + _RULES
    )


_RULES = """
.tl text{font:12.5px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:var(--tl-text)}
.tl.narrow text{font-size:12px}
.tl .head,.tl .time,.tl .gap{fill:var(--tl-muted)}
.tl text.head{font-size:11.5px}
.tl.narrow text.head{font-size:10px}
.tl .aside{fill:var(--tl-muted)}
.tl .word{font-weight:700}
.tl .life{stroke:var(--tl-line);stroke-dasharray:1 5;stroke-linecap:round;stroke-width:1.5}
.tl .rule{stroke:var(--tl-examiner);stroke-width:1.5;stroke-dasharray:6 4}
.tl .band{fill:var(--tl-band)}
.tl .edge{fill:var(--tl-bad)}
.tl .hand{stroke:var(--tl-hand);stroke-width:3}
.tl .work{fill:var(--tl-work)}
.tl .work.lost{fill:var(--tl-bad)}
.tl .arrow{stroke:var(--tl-muted);stroke-width:1.5;fill:none}
.tl .tip{fill:var(--tl-muted)}
.tl .mark{stroke:var(--tl-text);fill:var(--tl-ground);stroke-width:2;stroke-linejoin:round;stroke-linecap:round}
.tl .mark.full{fill:var(--tl-text)}
.tl .mark.good{stroke:var(--tl-good)}
.tl .mark.bad{stroke:var(--tl-bad)}
.tl .mark.exam{stroke:var(--tl-examiner)}
.tl .mark.exam.full{fill:var(--tl-examiner)}
.tl .mark.work2{stroke:var(--tl-work)}
"""


@dataclass(frozen=True, slots=True)
class _Frame:
    """Measures of one picture, in CSS pixels (characters are monospaced)."""

    width: int
    pitch: float
    lanes_left: float
    caption_left: float
    caption_chars: int
    times_apart: bool  # a column of times at the left, or the time under each caption

    head: int = 34
    line: int = 17
    padding: int = 5

    def x(self, lane: int) -> float:
        """The middle of a lane."""
        return self.lanes_left + (lane + 0.5) * self.pitch


_CHAR, _CHAR_NARROW = 7.6, 7.25  # at 12.5 px and at 12 px


def svg(layout: Layout, *, name: str, narrow: bool = False, standalone: bool = False) -> str:
    """The picture. `name` must be unique on the page (its title and description get ids from it).

    Wide is 760 px and needs no scrolling on a desk, `narrow` is 328 px for telephones.
    `standalone` brings its own style sheet and namespace, to be a file of its own.
    """
    frame = _frame(layout, narrow=narrow)
    texts = [_texts(row, frame) for row in layout.rows]
    tops = [float(frame.head)]
    for lines in texts:
        tops.append(tops[-1] + len(lines) * frame.line + 2 * frame.padding)
    middles = [top + frame.padding + frame.line / 2 for top in tops[:-1]]
    height = tops[-1] + 8
    parts = [
        _opening(layout, frame, height, name, standalone=standalone),
        *_bands(layout, frame, tops),
        *_lifelines(layout, frame, tops),
        *_rules(layout, frame, middles),
        *(_bar(bar, frame, tops, middles) for bar in layout.bars if not bar.work),
        *(_bar(bar, frame, tops, middles) for bar in layout.bars if bar.work),
    ]
    for row, lines, middle in zip(layout.rows, texts, middles, strict=True):
        parts += _row(row, lines, middle, frame)
    parts.append("</svg>")
    return "".join(parts)


def _frame(layout: Layout, *, narrow: bool) -> _Frame:
    lanes = max(len(layout.lanes), 1)
    if narrow:
        pitch = min(28.0, 126 / lanes)
        left = 6 + lanes * pitch + 8
        return _Frame(328, pitch, 6, left, int((328 - left) / _CHAR_NARROW), times_apart=False)
    pitch = min(66.0, 340 / lanes)
    left = 92 + lanes * pitch + 14
    return _Frame(760, pitch, 92, left, int((760 - left) / _CHAR), times_apart=True)


def _texts(row: Row, frame: _Frame) -> list[tuple[str, str]]:
    """A row's lines as (css class, text): the word in bold first, then what does not fit beside."""
    if row.event is None:
        return [("gap", row.caption)]
    if frame.times_apart:
        return [("", line) for line in _wrapped(row.caption, frame)]
    first, rest = row.caption, ""
    if row.about and row.detail:  # the message must not drown in what else there is to say
        first, rest = f"{row.word} {row.about}", f", {row.detail}"
    return [
        *(("", line) for line in _wrapped(first, frame)),
        *(("time", line) for line in _wrapped(row.time + rest, frame)),
    ]


def _wrapped(text: str, frame: _Frame) -> list[str]:
    # characters of two columns (CJK, emoji) take the room of two
    limit = max(frame.caption_chars * len(text) // max(cell_len(text), 1), 8)
    return textwrap.wrap(text, limit, max_lines=4, placeholder=" …") or [text]


def _opening(layout: Layout, frame: _Frame, height: float, name: str, *, standalone: bool) -> str:
    name = escape(name, quote=True)
    kind = "tl" if frame.times_apart else "tl narrow"
    namespace = ' xmlns="http://www.w3.org/2000/svg"' if standalone else ""
    sheet = f"<style>{style()}</style>" if standalone else ""
    return (
        f'<svg{namespace} class="{kind}" role="img" aria-labelledby="{name}-title {name}-desc" '
        f'width="{frame.width}" height="{height:.0f}" viewBox="0 0 {frame.width} {height:.0f}">'
        f'<title id="{name}-title">Timeline of {sum(row.event is not None for row in layout.rows)} '
        f"events in {len(layout.lanes)} lanes</title>"
        f'<desc id="{name}-desc">{escape(layout.describe())}</desc>{sheet}'
    )


def _bands(layout: Layout, frame: _Frame, tops: list[float]) -> list[str]:
    """The witness stands on a band with an edge; nothing does if all of it is witness."""
    if all(row.witness for row in layout.rows):
        return []
    return [
        f'<rect class="band" x="0" y="{top:.1f}" width="{frame.width}" height="{below - top:.1f}"/>'
        f'<rect class="edge" x="0" y="{top:.1f}" width="3" height="{below - top:.1f}"/>'
        for row, top, below in zip(layout.rows, tops, tops[1:], strict=False)
        if row.witness
    ]


def _lifelines(layout: Layout, frame: _Frame, tops: list[float]) -> list[str]:
    parts = []
    for index, lane in enumerate(layout.lanes):
        x = frame.x(index)
        parts.append(
            f'<line class="life" x1="{x:.1f}" y1="{tops[0]:.1f}" x2="{x:.1f}" y2="{tops[-1]:.1f}"/>'
            f'<text class="head" x="{x:.1f}" y="20" text-anchor="middle">'
            f"{escape(_head(lane, frame))}</text>"
        )
    return parts


def _head(lane: Lane, frame: _Frame) -> str:
    room = int(frame.pitch / (7 if frame.times_apart else 6))
    return next((name for name in (lane.name, lane.short) if len(name) <= room), lane.short[:room])


def _rules(layout: Layout, frame: _Frame, middles: list[float]) -> list[str]:
    """What concerns every lane crosses every lane."""
    left, right = frame.lanes_left, frame.x(len(layout.lanes) - 1) + frame.pitch / 2
    return [
        f'<line class="rule" x1="{left:.1f}" y1="{y:.1f}" x2="{right:.1f}" y2="{y:.1f}"/>'
        for row, y in zip(layout.rows, middles, strict=True)
        if row.rule
    ]


def _bar(bar: Bar, frame: _Frame, tops: list[float], middles: list[float]) -> str:
    """A thin line for a message in hand, a broad bar for its handler; ragged where it goes on."""
    x = frame.x(bar.lane)
    top = tops[0] if bar.first < 0 else middles[bar.first]
    goes_on = bar.last >= len(middles)
    bottom = tops[-1] if goes_on else middles[bar.last]
    if not bar.work:
        return f'<line class="hand" x1="{x:.1f}" y1="{top:.1f}" x2="{x:.1f}" y2="{bottom:.1f}"/>'
    half = max(min(frame.pitch * 0.2, 9.0), 2.5)
    lost = " lost" if bar.ending in {Ending.CUT, Ending.FAILED, Ending.CANCELLED} else ""
    points = [(x - half, top), (x + half, top), (x + half, bottom)]
    if goes_on or bar.ending is Ending.CUT:  # torn off: three teeth
        steps = 3
        for tooth in range(steps):
            at = x + half - (2 * tooth + 1) * half / steps
            points += [(at, bottom - 6), (at - half / steps, bottom)]
    else:
        points.append((x - half, bottom))
    shape = " ".join(f"{a:.1f},{b:.1f}" for a, b in points)
    return f'<polygon class="work{lost}" points="{shape}"/>'


def _row(row: Row, lines: list[tuple[str, str]], y: float, frame: _Frame) -> list[str]:
    parts: list[str] = []
    if row.towards is not None:
        parts.append(_arrow(frame.x(row.lane), frame.x(row.towards), y))
    if row.event is not None:
        subject = row.lane
        if row.towards is not None and row.event.kind in _ARRIVING:
            subject = row.towards
        parts.append(_mark(row.event.kind, frame.x(subject), y, min(frame.pitch * 0.3, 7.0)))
    aside = "" if row.witness else " aside"
    if frame.times_apart and row.time:
        parts.append(_text("time", frame.lanes_left - 10, y, row.time, anchor="end"))
    for number, (kind, text) in enumerate(lines):
        words = row.word if number == 0 and row.event is not None else ""
        parts.append(
            _text(
                kind or f"said{aside}",
                frame.caption_left,
                y + number * frame.line,
                text,
                bold=words,
            )
        )
    return parts


def _text(css: str, x: float, y: float, text: str, *, anchor: str = "", bold: str = "") -> str:
    where = f' text-anchor="{anchor}"' if anchor else ""
    if bold and text.startswith(bold):
        body = f'<tspan class="word">{escape(bold)}</tspan>{escape(text[len(bold) :])}'
    else:
        body = escape(text)
    return f'<text class="{css}" x="{x:.1f}" y="{y + 4.3:.1f}"{where}>{body}</text>'


def _arrow(x1: float, x2: float, y: float) -> str:
    step = 1 if x2 > x1 else -1
    tip = x2 - step * 8
    return (
        f'<path class="arrow" d="M{x1:.1f} {y:.1f}H{tip - step * 4:.1f}"/>'
        f'<path class="tip" d="M{tip:.1f} {y:.1f}l{-step * 7} -4v8z"/>'
    )


_ARRIVING = frozenset({Kind.TAKEN, Kind.CONFIRMED, Kind.SETTLE_FAILED})


def _circle(r: float) -> str:
    return f"M{-r:.1f} 0a{r:.1f} {r:.1f} 0 1 0 {2 * r:.1f} 0a{r:.1f} {r:.1f} 0 1 0 {-2 * r:.1f} 0z"


def _cross(r: float) -> str:
    return f"M{-r:.1f} {-r:.1f}L{r:.1f} {r:.1f}M{r:.1f} {-r:.1f}L{-r:.1f} {r:.1f}"


def _square(r: float) -> str:
    return f"M{-r:.1f} {-r:.1f}h{2 * r:.1f}v{2 * r:.1f}h{-2 * r:.1f}z"


def _diamond(r: float) -> str:
    return f"M0 {-r:.1f}L{r:.1f} 0L0 {r:.1f}L{-r:.1f} 0z"


def _tick(r: float) -> str:
    return f"M{-r * 0.5:.1f} 0L{-r * 0.1:.1f} {r * 0.42:.1f}L{r * 0.55:.1f} {-r * 0.4:.1f}"


def _pause(r: float) -> str:
    x, y = r * 0.28, r * 0.42
    return f"M{-x:.1f} {-y:.1f}v{2 * y:.1f}M{x:.1f} {-y:.1f}v{2 * y:.1f}"


def _bolt(r: float) -> str:
    return (
        f"M{r * 0.3:.1f} {-r:.1f}L{-r * 0.7:.1f} {r * 0.2:.1f}H{-r * 0.05:.1f}"
        f"L{-r * 0.3:.1f} {r:.1f}L{r * 0.7:.1f} {-r * 0.2:.1f}H{r * 0.05:.1f}z"
    )


_SHAPES: dict[Kind, tuple[str, Callable[[float], str]]] = {
    Kind.TAKEN: ("", _circle),
    Kind.STARTED: ("work2", lambda r: f"M{-r:.1f} {-r * 0.7:.1f}H{r:.1f}L0 {r * 0.8:.1f}z"),
    Kind.FINISHED: ("work2", lambda r: _square(r * 0.8)),
    Kind.HELD: ("exam", lambda r: _circle(r) + _pause(r)),
    Kind.FAILED: ("bad", lambda r: _circle(r) + _cross(r * 0.45)),
    Kind.CANCELLED: (
        "bad",
        lambda r: _circle(r) + f"M{-r * 0.7:.1f} {r * 0.7:.1f}L{r * 0.7:.1f} {-r * 0.7:.1f}",
    ),
    Kind.ACK: ("good", lambda r: _circle(r) + _tick(r)),
    Kind.REQUEUE: (
        "",
        lambda r: (
            _circle(r)
            + f"M{r * 0.5:.1f} 0H{-r * 0.4:.1f}l{r * 0.4:.1f} {-r * 0.4:.1f}m{-r * 0.4:.1f} {r * 0.4:.1f}l{r * 0.4:.1f} {r * 0.4:.1f}"
        ),
    ),
    Kind.GIVE_UP: ("bad", lambda r: _square(r * 0.9) + _cross(r * 0.4)),
    Kind.SETTLED: ("good full2", lambda r: _circle(r * 0.45)),
    Kind.SETTLE_FAILED: ("bad", lambda r: _cross(r * 0.8)),
    Kind.SETTLED_TWICE: ("bad", lambda r: _cross(r * 0.8)),
    Kind.RAISED: ("bad", lambda r: _cross(r * 0.8)),
    Kind.RUN_RAISED: ("bad", lambda r: _circle(r) + _cross(r * 0.45)),
    Kind.BROKEN: ("bad", lambda r: _circle(r) + _cross(r * 0.45)),
    Kind.RUN_RETURNED: ("full", lambda r: _square(r * 0.7)),
    Kind.EXITED: ("full", lambda r: _square(r * 0.7)),
    Kind.STOP_SET: ("exam", lambda r: _square(r * 0.9)),
    Kind.STOP_IN_FORCE: ("exam full", lambda r: _square(r * 0.9)),
    Kind.SOURCE_STOPPED: ("", lambda r: _square(r * 0.9)),
    Kind.SOURCE_CLOSED: ("full", lambda r: _square(r * 0.9)),
    Kind.CONNECTING: ("", lambda r: _square(r * 0.9)),
    Kind.CONNECTED: ("", lambda r: _square(r * 0.9)),
    Kind.DISCONNECTING: ("", lambda r: _square(r * 0.9)),
    Kind.DISCONNECTED: ("full", lambda r: _square(r * 0.9)),
    Kind.BROKER: ("exam", _diamond),
    Kind.FAULT: ("exam full", lambda r: _bolt(r * 1.3)),
    Kind.RELEASED: ("exam", _diamond),
    Kind.BREAK: ("exam", lambda r: _circle(r) + _pause(r)),
    Kind.COMMITTED: ("good", lambda r: _square(r * 0.9)),
    Kind.COMMIT_LOST: ("exam full", lambda r: _bolt(r * 1.3)),
    Kind.LEASE_LOST: ("exam full", lambda r: _bolt(r * 1.3)),
    Kind.COUNTED: ("exam", _diamond),
    Kind.LEASE_SEEN: ("exam", _diamond),
    Kind.LEASE_TAKEN: ("good", lambda r: _square(r * 0.9)),
    Kind.LEASE_REFUSED: ("", lambda r: _square(r * 0.9)),
    Kind.LEASE_HAMMERED: ("", lambda r: _square(r * 0.9)),
    Kind.LEASE_RELEASED: ("full", lambda r: _square(r * 0.9)),
    Kind.EFFECT: ("work2 full", lambda r: _square(r * 0.9)),
    Kind.EXPECTED: ("exam", lambda r: _circle(r) + f"M0 {-r * 0.55:.1f}V0H{r * 0.45:.1f}"),
}


def _mark(kind: Kind, x: float, y: float, r: float) -> str:
    css, shape = _SHAPES.get(kind, ("full", lambda size: _circle(size * 0.5)))
    return f'<path class="mark {css}" transform="translate({x:.1f} {y:.1f})" d="{shape(r)}"/>'
