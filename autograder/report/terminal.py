"""A grade on the terminal: the failures, then every guarantee in one line, then what to type next.

The first failure is told in full and fits a screen of 80 by 24; the others are shorter, since a
student mends one thing at a time. The list of guarantees and the next command come last, where
the eye is when the program ends. Nothing is told by colour alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

from autograder.model import Grade, Kind, Result, Status
from autograder.report import words
from autograder.report.commands import typed
from autograder.report.excerpt import draw
from autograder.report.plain import capped, plain
from autograder.report.timeline_text import draw as draw_text
from autograder.report.timeline_text import legend
from autograder.report.words import NOTHING_ELSE, Asked

if TYPE_CHECKING:
    from rich.console import Console

_STYLE = {Status.PASS: "green", Status.FAIL: "red", Status.INCONCLUSIVE: "magenta"}
_WIDEST = 100  # columns: longer lines are hard to read
_INDENT = 4
_ROWS_FIRST, _ROWS_OTHERS, _ROWS_VERBOSE = 12, 5, 24
_OUTPUT_LINES, _OUTPUT_LIMIT = 6, 2_000
_OUTPUT_ROWS = 4  # a line of output may take, wrapped
_OUR_FRAME = f'  File "{Path(__file__).resolve().parents[1]}/'
_TRACEBACK_LIMIT = 4_000


def render(
    grade: Grade, console: Console, *, verbose: bool = False, asked: Asked = NOTHING_ELSE
) -> None:
    """Print a grade. `verbose` tells every failure in full and shows more of the output."""
    page = _Page(console)
    _header(page, grade, asked)
    if grade.problem is not None:
        _problem(page, grade)
    else:
        _failures(page, grade, verbose=verbose, visible=asked.visible)
        _open_ones(page, grade)
    _output(page, grade, verbose=verbose)
    if grade.problem is None:
        _list(page, grade, visible=asked.visible)
    _summary(page, grade, asked)


class _Page:
    """A console that takes text as text: no markup, no highlighting, nothing obeyed."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.width = max(min(console.width, _WIDEST), 20)

    def say(
        self, text: str | Text = "", *, indent: int = 0, style: str = "", lead: Text | None = None
    ) -> None:
        """A paragraph, wrapped, its further lines indented like the first.

        `lead` stands in the indentation of the first line.
        """
        body = text if isinstance(text, Text) else Text(text, style=style)
        indent = lead.cell_len if lead else min(indent, self.width // 8)
        for line in body.wrap(self.console, self.width - indent) or [Text()]:
            whole = (lead or Text(" " * indent)).append_text(line)
            whole.rstrip()
            self.line(whole)
            lead = None

    def command(self, label: str, command: str, *, indent: int = 0) -> None:
        """A command to copy: never broken into lines by us."""
        line = Text(" " * min(indent, self.width // 8)).append(f"{label:<6} ", style="dim")
        self.line(line.append(typed(command), style="bold"))

    def line(self, text: Text) -> None:
        """One line as it is, wrapped by nobody but the terminal."""
        self.console.print(self._encodable(text), soft_wrap=True, highlight=False)

    def _encodable(self, text: Text) -> Text:
        """What the terminal's encoding lacks, written as an escape instead of a crash."""
        encoding = self.console.encoding or "utf-8"
        try:
            text.plain.encode(encoding)
        except UnicodeEncodeError:
            # character by character, so that styles stay on theirs
            safe = Text(style=text.style, end=text.end)
            for part in text.split("\n", include_separator=True, allow_blank=True):
                for letter in part.divide(range(1, len(part))):
                    shown = _SUBSTITUTES.get(letter.plain, letter.plain)
                    shown = shown.encode(encoding, "backslashreplace").decode(encoding)
                    style = letter.spans[0].style if letter.spans else ""
                    safe.append(shown, style=style)
            return safe
        return text


_SUBSTITUTES = {"✓": "+", "✗": "x", "·": "-", "…": "~", "⋮": ":"}


def _header(page: _Page, grade: Grade, asked: Asked) -> None:
    title = Text.assemble((words.sentence(grade.exercise.title), "bold"))
    page.say(title.append(f"  {plain(grade.exercise.path)}", style="dim"))
    page.say(plain(words.submission_path(grade)))
    page.say(words.environment(grade, asked), style="dim")
    for notice in grade.notices:
        page.say(Text.assemble(("! ", "bold yellow")).append(words.sentence(notice)))
    if not grade.complete:
        page.say(Text.assemble(("! ", "bold yellow")).append("Interrupted: this decides nothing."))


def _problem(page: _Page, grade: Grade) -> None:
    problem = grade.problem
    if problem is None:
        return
    page.say()
    page.say(words.sentence(problem.sentence), lead=_verdict(Status.FAIL).append("  "))
    if problem.traceback.strip():
        page.say()
        page.say(
            plain(capped(problem.traceback.rstrip(), _TRACEBACK_LIMIT), lines=True), indent=_INDENT
        )


def _failures(page: _Page, grade: Grade, *, verbose: bool, visible: bool) -> None:
    for told, (result, *same) in enumerate(_by_reason(grade, Status.FAIL)):
        full = verbose or told == 0
        rows = _ROWS_VERBOSE if verbose else _ROWS_FIRST if full else _ROWS_OTHERS
        _result(page, result, same, rows=rows, full=full, first=told == 0)
        page.command("Next:", words.hint_command(result), indent=_INDENT)
        again = words.check_command(grade, result, visible=visible)
        page.command("Again:", again, indent=_INDENT)
        if replay := words.replay_command(grade, result, visible=visible):
            page.command("Whole:", replay, indent=_INDENT)


def _open_ones(page: _Page, grade: Grade) -> None:
    """What a complete grade could not decide, a line each: there is nothing to mend."""
    stories = _by_reason(grade, Status.INCONCLUSIVE) if grade.complete else []
    if stories:
        page.say()
    for story in stories:
        names = ", ".join(plain(each.guarantee) for each in story)
        observed = words.sentence(story[0].verdict.observed)
        said = f"{names}: not put to the test" + (f": {observed}" if observed else "")
        page.say(said, lead=_verdict(Status.INCONCLUSIVE).append("  "))
        if stopped := words.stopped_at(story[0]):
            page.say(stopped, indent=_INDENT, style="dim")


def _by_reason(grade: Grade, status: Status) -> list[list[Result]]:
    """Results of one status; those with the same observation are one story, told once."""
    stories: dict[str, list[Result]] = {}
    for result in words.causes_first(grade.results):
        if result.verdict.status is status:
            stories.setdefault(result.verdict.observed or result.guarantee, []).append(result)
    return list(stories.values())


def _result(
    page: _Page,
    result: Result,
    same: list[Result],
    *,
    rows: int,
    full: bool,
    first: bool,
) -> None:
    """One failure and those with the same reason; the first one's drawing is explained."""
    verdict = result.verdict
    page.say()
    head = Text(words.sentence(result.sentence)).append(f"  {words.score(result)}", style="dim")
    page.say(head, lead=_verdict(verdict.status).append("  "))
    page.say(words.origin(result), indent=_INDENT, style="dim")
    if verdict.observed:
        page.say(words.sentence(verdict.observed), indent=_INDENT)
    picture = draw(verdict, result.history if full else None, rows=rows)
    if picture is not None:
        indent = _INDENT - 2
        if full:
            page.say()
        for line in draw_text(picture, page.console, page.width - indent):
            page.line(Text(" " * indent).append_text(line))
        if first:
            page.say(legend(picture, page.console), indent=indent, style="dim")
        if full:
            page.say()
    _traceback(page, result, full=full)
    if told := words.met(result):
        page.say(told, indent=_INDENT)
    if same:
        names = ", ".join(plain(each.guarantee) for each in same)
        page.say(f"For the same reason: {names}", indent=_INDENT)
    if verdict.slip:
        page.say(f"Likely slip: {words.sentence(verdict.slip)}", indent=_INDENT)


def _traceback(page: _Page, result: Result, *, full: bool) -> None:
    """What the student's function raised, if that is part of the story: its last lines."""
    raised = [each for each in result.verdict.witness if each.kind is Kind.RUN_RAISED]
    lines = raised[0].detail.strip().split("\n")[1:] if raised else []
    if full and lines:
        page.say(plain(capped("\n".join(lines[-6:]), 600), lines=True), indent=_INDENT, style="dim")


def _output(page: _Page, grade: Grade, *, verbose: bool) -> None:
    """The last lines that the program printed, each whole: the end of a warning is its point."""
    if not grade.output.strip():
        return
    limit, most = (_OUTPUT_LIMIT * 20, 200) if verbose else (_OUTPUT_LIMIT, _OUTPUT_LINES)
    cut = len(grade.output.rstrip()) > limit
    every = plain(grade.output.rstrip()[-limit:], lines=True).split("\n")
    lines = _own(every[1:] if cut and len(every) > 1 else every)
    page.say()
    more = len(lines) > most or cut
    page.say("Your program printed" + (", in the end:" if more else ":"))
    for line in lines[-most:]:
        text = Text(line.expandtabs(4), style="dim")
        for row in text.wrap(page.console, max(page.width - 6, 10))[:_OUTPUT_ROWS]:
            row.rstrip()
            page.line(Text("  | " if row else "  |", style="dim").append_text(row))


def _own(lines: list[str]) -> list[str]:
    """Without the frames of ours in a traceback, and without advice about `tracemalloc`."""
    kept: list[str] = []
    skipping = False
    for line in lines:
        if line.startswith("  File "):
            skipping = line.startswith(_OUR_FRAME)
        elif not line.startswith("    "):
            skipping = False
        if not skipping and "Enable tracemalloc to get" not in line:
            kept.append(line)
    return kept


def _list(page: _Page, grade: Grade, *, visible: bool) -> None:
    page.say()
    for result in grade.results:
        status = result.verdict.status
        score = words.score(result, complete=grade.complete)
        decided = status is Status.FAIL or (status is Status.PASS and grade.complete)
        verdict = _verdict(status) if decided else _undecided()
        _one_line(page, verdict, plain(result.sentence), score)
    for name in () if visible else words.not_judged(grade):
        score = f"-/{grade.exercise.points[name]}"
        _one_line(page, Text("  ----", style="dim"), f"{plain(name)}: not judged", score)


def _one_line(page: _Page, verdict: Text, said: str, score: str) -> None:
    """Verdict, sentence and points in exactly one line; what does not fit is left out."""
    room = max(page.width - verdict.cell_len - len(score) - 4, 8)
    sentence = Text(said)
    sentence.truncate(room, overflow="ellipsis", pad=True)
    page.line(verdict.append("  ").append_text(sentence).append(f"  {score}"))


def _summary(page: _Page, grade: Grade, asked: Asked) -> None:
    page.say()
    page.say(_verdict(grade.status).append(f"  {words.summary(grade, asked)}"))
    page.command("Next:", words.next_command(grade, asked))


def _verdict(status: Status) -> Text:
    return Text.assemble((f"{words.GLYPH[status]} {words.WORD[status]}", f"bold {_STYLE[status]}"))


def _undecided() -> Text:
    """Stands in the column of verdicts, as wide as they are."""
    look = f"bold {_STYLE[Status.INCONCLUSIVE]}"
    return Text.assemble((f"{words.GLYPH[Status.INCONCLUSIVE]} ----", look))
