"""A deploy as a picture: one line for each order, from the signal to the last settlement."""

from __future__ import annotations

from typing import Any

from autograder.model import Kind
from lessonkit.pictures import colours, plot
from lessonkit.rollout import Rollout, Stretch

_BEFORE_S = 1.5  # what is shown of the time before the signal, with room for its name


def show_rollout(rollout: Rollout, *, title: str, caption: str, until_s: float) -> None:
    """Draw who worked on which order, and when: the old process filled, the new one outlined.

    `until_s` is the right edge, in seconds after the signal: the same for pictures to compare.
    """
    zero = rollout.told_at
    published = rollout.history.of(Kind.PUBLISHED)
    rows = {event.message: row for row, event in enumerate(published, start=1)}
    with plot(title=title, caption=caption, alt=_in_words(rollout), size=(5.2, 4.2)) as axes:
        for row, event in enumerate(published, start=1):
            since, until = (
                event.at - zero,
                rollout.settled_at.get(event.message, zero + until_s) - zero,
            )
            axes.hlines(row, max(since, -_BEFORE_S), until, color=colours().hand, linewidth=1.2)
        for stretch in rollout.stretches:
            _draw(axes, stretch, rows[stretch.message], zero)
        _mark(axes, 0, "SIGTERM", side="right")
        _mark(axes, rollout.ended_at - zero, "old process gone", side="left")
        axes.set(
            xlabel="seconds after the signal",
            xlim=(-_BEFORE_S, until_s),
            ylim=(len(rows) + 0.8, -0.9),
            yticks=[1, *range(4, len(rows) + 1, 4)],
        )
        axes.set_ylabel("order")
        axes.grid(visible=False, axis="y")


def _draw(axes: Any, stretch: Stretch, row: int, zero: float) -> None:
    palette = colours()
    old = stretch.process == 1
    colour = palette.bad if stretch.torn else palette.work if old else palette.good
    begin = max(stretch.begin - zero, -_BEFORE_S)
    axes.barh(
        row, stretch.end - zero - begin, left=begin, height=0.62, zorder=3,
        facecolor=colour if old else palette.ground, edgecolor=colour, linewidth=1.4,
    )  # fmt: skip
    if stretch.torn:
        axes.plot([stretch.end - zero], [row], marker="x", color=palette.bad, zorder=4)


def _mark(axes: Any, at: float, text: str, *, side: str) -> None:
    """A line through all orders, and its name above them."""
    axes.axvline(at, color=colours().examiner, linestyle="--", linewidth=1.4, zorder=2)
    space = -0.08 if side == "right" else 0.08
    axes.text(at + space, -0.1, text, ha=side, va="center", color=colours().examiner)


def _in_words(rollout: Rollout) -> str:
    first = min((s.begin for s in rollout.stretches if s.process > 1), default=rollout.ended_at)
    return (
        f"The old process ends {rollout.ended}, {rollout.old_s:.1f} s after the "
        f"signal; {rollout.torn_off} of its handlers are torn off. The new one begins its first order "
        f"{first - rollout.told_at:.1f} s after the signal. {rollout.begun_twice} orders are begun "
        f"twice, {rollout.done_twice} done twice; the last is settled {rollout.took_s:.1f} s after the "
        "signal."
    )
