"""A layout drawn with characters: what `git log --graph` does for branches, for messages in hand.

One row per event: its time, the lanes, and in words what happened. Where the terminal cannot show
box characters there are ASCII ones, where there is no room for lanes there are only words.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.text import Text

from autograder.model import Kind
from autograder.report.timeline import Bar, Ending, Layout, Role, Row

if TYPE_CHECKING:
    from rich.console import Console

_CAPTION_MOST, _CAPTION_LEAST = 40, 20  # columns; words matter more than lanes
_WIDEST_PITCH = 9
_CAPTION_LINES = 3


@dataclass(frozen=True, slots=True)
class Glyphs:
    """One character for each thing a lane can show, every one a single column wide."""

    idle: str
    hand: str
    work: str
    line: str
    over_hand: str
    over_work: str
    right: str
    left: str
    start: str
    end: str
    cut: str
    taken: str
    ack: str
    back: str
    give_up: str
    failed: str
    cancelled: str
    held: str
    dot: str
    fault: str
    stop: str
    gap: str


BOX = Glyphs(
    *("·", "│", "┃", "─", "┼", "╂", "▸", "◂", "┏", "┗", "╳"),  # noqa: RUF001 - a drawing character
    *("○", "✓", "↺", "⊗", "✗", "⊘", "‖", "●", "!", "■", "┊"),
)
ASCII = Glyphs(
    *(".", "|", "#", "-", "+", "#", ">", "<", "#", "#", "X"),
    *("o", "v", "^", "x", "X", "/", "=", "o", "!", "*", ":"),
)

_GLYPH_OF = {
    Kind.TAKEN: "taken",
    Kind.STARTED: "start",
    Kind.FINISHED: "end",
    Kind.FAILED: "failed",
    Kind.CANCELLED: "cancelled",
    Kind.HELD: "held",
    Kind.ACK: "ack",
    Kind.REQUEUE: "back",
    Kind.GIVE_UP: "give_up",
    Kind.SETTLE_FAILED: "failed",
    Kind.SETTLED_TWICE: "failed",
    Kind.RAISED: "failed",
    Kind.RUN_RAISED: "failed",
    Kind.BROKEN: "failed",
    Kind.STOP_SET: "stop",
    Kind.STOP_IN_FORCE: "stop",
    Kind.EXITED: "stop",
    Kind.FAULT: "fault",
}
_MEANINGS = {
    "taken": "taken",
    "ack": "acked",
    "back": "given back",
    "give_up": "given up",
    "failed": "failed",
    "cancelled": "cancelled",
    "held": "held back by the test",
    "fault": "fault made by the test",
    "stop": "stop or end",
}
_BAD = frozenset(
    {
        Kind.FAILED,
        Kind.CANCELLED,
        Kind.SETTLE_FAILED,
        Kind.SETTLED_TWICE,
        Kind.RAISED,
        Kind.RUN_RAISED,
        Kind.FAULT,
    }
)
_FROM_BROKER = frozenset({Kind.TAKEN, Kind.CONFIRMED, Kind.SETTLE_FAILED})


def draw(layout: Layout, console: Console, width: int) -> list[Text]:
    """The picture in lines of at most `width` columns."""
    glyphs = ASCII if console.options.ascii_only else BOX
    times = max((len(row.time) for row in layout.rows), default=0) + 2
    pitch = _pitch(layout, width - times - 2)
    lanes = len(layout.lanes) * pitch
    captions = max(width - times - lanes - (2 if lanes else 1), 8)
    lines = [_heads(layout, times, pitch)] if pitch else []
    for index, row in enumerate(layout.rows):
        wrapped = _caption(row).wrap(console, captions)[:_CAPTION_LINES]
        for number, said in enumerate(wrapped):
            said.rstrip()
            time = row.time if number == 0 else ""
            pointer = ">" if row.witness and number == 0 else " "
            line = Text(f"{pointer} {time:>{times - 2}} ", style="" if row.witness else "dim")
            if pitch:
                cells = _cells(layout, index if number == 0 else -index - 1, pitch, glyphs)
                line.append_text(cells).append(" ")
            lines.append(line.append_text(said))
    return lines


def legend(layout: Layout, console: Console) -> str:
    """The symbols this picture uses, in words: one short line."""
    glyphs = ASCII if console.options.ascii_only else BOX
    kinds = {row.event.kind for row in layout.rows if row.event is not None}
    said = [
        f"{getattr(glyphs, glyph)} {word}"
        for glyph, word in _MEANINGS.items()
        if any(_GLYPH_OF.get(kind) == glyph for kind in kinds)
    ]
    if any(bar.work for bar in layout.bars):
        said.append(f"{glyphs.work} handler at work")
    if any(not bar.work for bar in layout.bars):
        said.append(f"{glyphs.hand} in hand")
    if any(row.witness for row in layout.rows):
        said.append("> shows the failure")
    return ", ".join(said)


def _pitch(layout: Layout, room: int) -> int:
    """Columns per lane: what captions leave, and at worst two; 0 if even that is too much."""
    lanes = len(layout.lanes)
    longest = max((cell_len(row.caption) for row in layout.rows), default=0)
    pitch = (room - min(longest, _CAPTION_MOST)) // lanes
    if pitch < 4:
        pitch = min(4, (room - _CAPTION_LEAST) // lanes)
    return min(pitch, _WIDEST_PITCH) if pitch >= 2 else 0


def _heads(layout: Layout, times: int, pitch: int) -> Text:
    names = [lane.name if len(lane.name) < pitch else lane.short for lane in layout.lanes]
    return Text(
        " " * (times + 1) + "".join(name[:pitch].center(pitch) for name in names).rstrip(),
        style="dim",
    )


def _caption(row: Row) -> Text:
    if row.event is None:
        return Text(row.caption, style="dim")
    look = "" if row.witness else "dim"
    caption = Text(style=look).append(row.word, style="bold" if row.witness else "")
    if row.about:
        caption.append(f" {row.about}")
    caption.append(row.remark)
    return caption


def _cells(layout: Layout, index: int, pitch: int, glyphs: Glyphs) -> Text:
    """The lanes at one row; a negative index is a further line below that row's first."""
    continued = index < 0
    at = -index - 1 if continued else index
    row = layout.rows[at]
    canvas = [" "] * (len(layout.lanes) * pitch)
    styles = [""] * len(canvas)
    centres = [lane * pitch + (pitch - 1) // 2 for lane in range(len(layout.lanes))]
    for centre in centres:
        canvas[centre], styles[centre] = glyphs.idle, "dim"
    for bar in layout.bars:
        if bar.first <= at and (at < bar.last or (at == bar.last and not continued)):
            centre = centres[bar.lane]
            cut = bar.work and bar.ending is Ending.CUT and at == bar.last
            canvas[centre], styles[centre] = _bar_look(bar, glyphs.cut if cut else "", glyphs)
    if row.event is None:
        for lane, centre in zip(layout.lanes, centres, strict=True):
            if lane.role is not Role.SLOT or canvas[centre] == glyphs.idle:
                canvas[centre] = glyphs.gap
    elif not continued:
        _draw_mark(row, centres, canvas, styles, glyphs)
    line = Text()
    for character, style in zip(canvas, styles, strict=True):
        line.append(character, style=style)
    return line


def _bar_look(bar: Bar, end: str, glyphs: Glyphs) -> tuple[str, str]:
    if not bar.work:
        return glyphs.hand, "dim"
    return end or glyphs.work, "red" if bar.ending in {Ending.FAILED, Ending.CUT} else "bright_blue"


def _draw_mark(
    row: Row, centres: list[int], canvas: list[str], styles: list[str], glyphs: Glyphs
) -> None:
    kind = row.event.kind if row.event else Kind.TAKEN
    subject = row.lane
    if row.towards is not None:
        source, target = centres[row.lane], centres[row.towards]
        subject = row.towards if kind in _FROM_BROKER else row.lane
        step = 1 if target > source else -1
        for column in range(source + step, target, step):
            was = canvas[column]
            canvas[column] = {
                glyphs.work: glyphs.over_work,
                glyphs.hand: glyphs.over_hand,
            }.get(was, glyphs.line)
        if abs(target - source) > 1:
            canvas[target - step] = glyphs.right if step > 0 else glyphs.left
        other = row.lane if subject == row.towards else row.towards
        canvas[centres[other]], styles[centres[other]] = glyphs.dot, ""
    elif row.rule:
        for column in range(centres[row.lane]):
            if canvas[column] == " ":
                canvas[column], styles[column] = glyphs.line, "dim"
    canvas[centres[subject]] = getattr(glyphs, _GLYPH_OF.get(kind, "dot"))
    styles[centres[subject]] = (
        "bold red" if kind in _BAD else "bold green" if kind is Kind.ACK else "bold"
    )
