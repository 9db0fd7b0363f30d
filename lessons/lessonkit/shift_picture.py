"""A shift as a picture: every attempt at every order against time."""

from __future__ import annotations

from autograder.model import Kind
from lessonkit.pictures import colours, plot
from lessonkit.shift import Shift

_MOST_MARKS = 400  # more cannot be told apart, and a page has to carry them


def show_shift(shift: Shift, *, title: str, caption: str, orders: int, until_s: float) -> None:
    """Draw when each of `order-01` to `order-NN` was tried: printed, failed, set aside as a letter.

    `until_s` is the right edge, in seconds: the same for pictures to compare.
    """
    palette = colours()
    fine, failed = _marks(shift, finished=True), _marks(shift, finished=False)
    letters = [(e.at, _number(e.message)) for e in shift.history.of(Kind.DEAD_LETTERED)]
    with plot(title=title, caption=caption, alt=_in_words(shift), size=(5.2, 3.6)) as axes:
        looks = (
            (fine, "o", palette.good, palette.good, 14, "printed"),
            (failed, "x", palette.bad, palette.bad, 26, "failed"),
            (letters, "s", palette.ground, palette.text, 44, "dead letter"),
        )
        for marks, marker, face, edge, size, label in looks:
            if not marks:
                continue
            at, rows = zip(*marks, strict=True)
            face_of = {} if marker == "x" else {"facecolors": face, "edgecolors": edge}
            axes.scatter(
                at, rows, marker=marker, s=size, zorder=3, linewidths=1.4, label=label,
                **(face_of or {"c": edge}),
            )  # fmt: skip
        axes.set(xlabel="seconds", xlim=(-0.03 * until_s, until_s), ylim=(orders + 1.5, -0.5))
        axes.set_ylabel("order")
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, 1.14), ncols=3, frameon=False)


def _marks(shift: Shift, *, finished: bool) -> list[tuple[float, int]]:
    """When and which; of very many, evenly a part."""
    found = [(e.end, _number(e.message)) for e in shift.attempts if e.finished is finished]
    return found[:: len(found) // _MOST_MARKS + 1]


def _number(message: str) -> int:
    return int(message.rpartition("-")[2])


def _in_words(shift: Shift) -> str:
    said = f"{shift.finished} orders are printed; {shift.letters} become dead letters."
    if shift.attempts_of:
        message, times = shift.attempts_of.most_common(1)[0]
        said += f" {message} is tried {times:,} times."
    return f"{said} {shift.waiting} orders still wait at the end."
