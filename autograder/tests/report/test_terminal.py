from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from autograder import report
from autograder.model import Event, History, Kind, Status, Verdict, failed, inconclusive, passed
from autograder.report.terminal import render
from autograder.report.timeline_text import ASCII, BOX
from autograder.report.words import NOTHING_ELSE, Asked
from autograder.tests.report import samples

ALL = [
    samples.mixed,
    samples.broken,
    samples.interrupted,
    samples.undecided,
    samples.all_pass,
    samples.hostile,
    samples.grade,
]


ROOT = Path(report.__file__).resolve().parents[1]


def told(grade, width=80, *, encoding="utf-8", verbose=False, asked=NOTHING_ELSE, **options):
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding, errors="strict", newline="\n")
    render(grade, Console(file=file, width=width, **options), verbose=verbose, asked=asked)
    file.flush()
    return raw.getvalue().decode(encoding)


def test_a_failure_says_all_that_helps():
    text = told(samples.mixed())
    first = text[text.index("✗ FAIL") : text.index("There are never more handlers")]
    for part in (
        "A message is acknowledged only after its work is done.  0/3",
        "ack_follows_work · test_crash_between_work_and_ack · seed 2",
        "1 of 40 messages was acknowledged before its work was done",
        "  > 4.812 s    ●─────▸○      ┃      ·      ·    taken order-0017 (key k1)",
        "  > 4.812 s    ●◂─────✓      ┃      ·      ·    acked order-0017 (key k1)",
        "killed (SIGKILL)",
        "Likely slip: Is the ack sent before the work is done?",
        "Next:  ackademy hint ack_follows_work\n",
        "Again: ackademy check 03_concurrency/01_worker_pool --seed 2 --engine nats\n",
    ):
        assert part in first


def test_it_says_what_was_graded():
    text = told(samples.mixed())
    assert "exercises/03_concurrency/01_worker_pool/worker_pool.py\n" in text
    assert "nats 2.15.1 (embedded) · landlock isolation · seeds 1, 2, 3\n" in text
    assert "! RabbitMQ is not on this machine: graded on NATS only.\n" in text


def test_failures_of_one_reason_are_told_once():
    history, verdict = samples.raised()
    names = ["no_message_is_lost", "ack_follows_work", "pool_is_used"]
    text = told(samples.grade(*(samples.result(name, verdict, history) for name in names)))
    assert text.count("run() raised ValueError because one message failed") == 1
    assert "For the same reason: pool_is_used, no_message_is_lost\n" in text
    assert text.count("ackademy hint") == 2  # in the story and at the end


def test_every_failure_fits_a_screen():
    for text in (told(samples.mixed()), told(samples.hostile())):
        for block in text.split("\n✗ FAIL")[1:4]:
            assert block.count("\n") <= 24 or "script" in block


def test_every_guarantee_has_one_line_and_the_end_says_what_next():
    lines = told(samples.mixed()).rstrip("\n").split("\n")
    board, verdict, command = lines[-12:-3], lines[-2], lines[-1]
    assert [line[:6] for line in board].count("✓ PASS") == 4
    assert [line[:6] for line in board].count("? ----") == 1
    assert board[0] == (
        "✓ PASS  Every message the broker confirmed is processed at least once.       3/3"
    )
    assert verdict == "✗ FAIL  9 of 20 points · 4 of 9 guarantees kept · 12.3 s"
    assert command == "Next:  ackademy hint ack_follows_work"


def test_a_pass_is_short():
    text = told(samples.all_pass())
    assert len(text.split("\n")) <= 20
    assert "✓ PASS  20 of 20 points" in text
    assert text.endswith("--engine kafka\n")
    done = told(samples.all_pass(), asked=Asked(passed=("nats", "kafka")))
    assert done.endswith("Next:  ackademy list\n")
    then = told(samples.all_pass(), asked=Asked(passed=("nats", "kafka"), then="04_b/01_next"))
    assert then.endswith("Next:  ackademy check 04_b/01_next\n")


def test_who_has_written_a_part_is_sent_to_the_first_promise_of_the_other():
    history, _ = samples.raised()
    raised = Event(0.0, Kind.RUN_RAISED, detail="NotImplementedError (pool.py line 3)\ntrace")
    text = told(
        samples.grade(
            samples.result("no_message_is_lost", failed("run() raised", [raised]), history),
            samples.result("pool_is_used", inconclusive("No handler was seen."), history),
            samples.result("ack_follows_work", passed(), history),
        )
    )
    assert text.endswith("Next:  ackademy hint pool_is_used\n")


def test_what_the_simulation_cannot_tell_is_not_asked_there_again():
    text = told(replace(samples.undecided(), engine="sim", provider="simulation"))
    assert text.endswith("--engine nats\n")
    assert "--seed" not in text.splitlines()[-1]


def test_an_exception_that_the_code_kept_to_itself_is_told():
    history, verdict = samples.raised()
    end = verdict.witness[-1].at

    def text(detail, at=0.0):
        event = Event(at, Kind.RAISED, detail=detail)
        events = tuple(sorted((*history.events, event), key=lambda each: each.at))
        kept = replace(history, events=events)
        return told(samples.grade(samples.result("no_message_is_lost", verdict, kept)))

    assert "exception in your code before that: KeyError: 'amont'" in text("KeyError: 'amont'")
    assert "before that" not in text("KeyError: 'amont'", at=end + 1)
    assert "before that" not in text("UniqueViolation: key")  # code is to expect it


def test_who_has_written_nothing_is_sent_to_the_lesson(tmp_path):
    history, _ = samples.raised()
    raised = Event(0.0, Kind.RUN_RAISED, detail="NotImplementedError (pool.py line 3)\ntrace")
    nothing = failed("raised before it took a message", [raised])
    grade = samples.grade(samples.result("ack_follows_work", nothing, history))
    assert "Next:  ackademy hint ack_follows_work" in told(grade)  # there is no lesson

    exercise = replace(grade.exercise, folder=tmp_path / "exercises" / grade.exercise.path)
    lesson = tmp_path / "lessons" / grade.exercise.path / "lesson.md"
    lesson.parent.mkdir(parents=True)
    lesson.touch()
    text = told(replace(grade, exercise=exercise))
    assert text.endswith(f"Next:  uv run --group docs ackademy lesson {exercise.path}\n")


def test_inconclusive_is_neither():
    text = told(samples.undecided())
    assert "? ----  Every message the broker confirmed" in text
    assert "? INCONCLUSIVE  no_message_is_lost: not put to the test: 12 messages" in text
    assert "Again:" not in text
    assert "-/3" in text
    assert "time ran out" in text
    assert "ackademy hint" not in text


def test_a_run_that_was_cut_short_is_named():
    met = Event(0.1, Kind.EXPECTED, detail="met taken=2 seen=2 buffered=0 in_hand=2")
    stood = Event(0.2, Kind.EXPECTED, detail="stalled taken=8 seen=7 buffered=2 in_hand=7")
    verdict = Verdict(Status.INCONCLUSIVE, "Too few workers to tell.")

    def said(*events):
        history = History(events, workers=6, test="test_x", seed=2)
        return told(samples.grade(samples.result("no_message_is_lost", verdict, history)))

    line = " ".join(said(met, stood).split())
    assert "test_x, seed 2, stopped at: 8 taken, saw 7: nothing moved any more (2 waiting" in line
    assert "stopped at" not in said(stood, met)
    assert "stopped at" not in said()


def test_a_problem_is_told_once():
    text = told(samples.broken())
    assert text.count("line 12 has an unclosed bracket") == 1
    assert "SyntaxError: '(' was never closed" in text
    assert text.count("ackademy check") == 1
    assert "ackademy hint" not in text


def test_an_interrupted_grade_says_so():
    text = told(samples.interrupted())
    assert "Interrupted: this decides nothing." in text
    assert "  ----  pool_is_used: not judged" in text
    assert "? INCONCLUSIVE  interrupted: nothing is decided yet · 12.3 s" in text
    assert "PASS" not in text
    assert "points" not in text


def test_an_interrupted_grade_keeps_what_is_certain():
    text = told(replace(samples.mixed(), complete=False))
    assert "✗ FAIL  interrupted: 4 failed, the others are open" in text
    assert "not put to the test" not in text


def test_visible_tests_are_no_grade():
    asked = Asked(visible=True)
    text = told(samples.all_pass(), asked=asked)
    assert "visible tests only · nats" in text
    assert "points" not in text
    assert "the full check decides" in text
    assert text.endswith("Next:  ackademy check 03_concurrency/01_worker_pool --engine nats\n")
    assert "--visible --seed 2" in told(samples.mixed(), asked=asked)


def test_one_seed_says_why_it_was_one():
    one = replace(samples.mixed(), seeds=(1,))
    assert "seed 1 (stopped at the first seed that fails; 3 seeds make a pass)" in told(
        one, 200, asked=Asked(seeds=(1, 2, 3))
    ).replace("\n", " ")
    assert "stopped at" not in told(one, asked=Asked(seeds=(1,)))


def test_a_loss_is_told_after_what_failed_beside_it():
    history, verdict = samples.ack_first()
    lost = failed("1 message was lost.")
    results = [
        samples.result("no_message_is_lost", lost, history),
        samples.result("ack_follows_work", verdict, history),
        samples.result("pool_is_used", passed()),
    ]
    text = told(samples.grade(*results))
    assert text.index("acknowledged only after") < text.index("1 message was lost")
    assert text.endswith("Next:  ackademy hint ack_follows_work\n")
    alone = told(samples.grade(results[0], results[2]))
    assert alone.endswith("Next:  ackademy hint no_message_is_lost\n")


def test_the_first_drawing_has_a_legend_of_what_it_uses():
    text = told(samples.mixed())
    assert text.count("○ taken, ✓ acked") == 1
    assert "shows the failure" in text


def test_a_long_last_line_of_output_is_whole_and_frames_of_ours_are_not_shown():
    warning = "/course/worker_pool.py:12: RuntimeWarning: coroutine 'handle_the_message' was never awaited"
    ours = f'  File "{ROOT / "subject" / "host.py"}", line 3, in run\n    await ours()\n'
    output = f"Traceback (most recent call last):\n{ours}ValueError: x\n{warning}\n"
    text = told(replace(samples.mixed(), output=output))
    shown = text[text.index("Your program printed") : text.index("✓ PASS")]
    assert "was never awaited" in " ".join(shown.replace("  | ", "").split())
    assert "ours()" not in shown


def test_an_empty_grade_is_no_pass():
    text = told(samples.grade())
    assert "? INCONCLUSIVE" in text
    assert "PASS" not in text


def test_the_submission_is_named_if_it_is_not_the_skeleton():
    other = samples.ROOT / "class" / "a b.py"
    text = told(samples.grade(samples.mixed().results[1], submission=other))
    assert "--submission 'class/a b.py'\n" in text


@pytest.mark.parametrize("make", ALL)
@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_no_width_breaks_it_and_nothing_runs_over(make, width):
    for verbose in (False, True):
        text = told(make(), width, verbose=verbose)
        for line in text.split("\n"):
            if "ackademy" not in line:  # commands stay whole to be copied
                assert len(line) <= max(width, 20) or width == 20
            assert line == line.rstrip()


@pytest.mark.parametrize("make", ALL)
@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "latin-1", "cp437"])
def test_terminals_without_unicode_get_the_same_report(make, encoding):
    text = told(make(), encoding=encoding)
    assert ("FAIL" in text) == (make().status is Status.FAIL)


def test_without_colour_there_is_not_one_escape():
    for options in ({"no_color": True, "color_system": None}, {}):
        assert "\x1b" not in told(samples.mixed(), **options)


def test_with_colour_the_words_are_the_same():
    coloured = told(samples.mixed(), force_terminal=True, color_system="standard")
    assert "\x1b[" in coloured
    assert "FAIL" in coloured


@pytest.mark.parametrize("make", ALL)
def test_hostile_texts_neither_act_nor_crash(make):
    text = told(make(), force_terminal=False, verbose=True)
    for character in "\x1b\x07\x00\x08\u202e\u2066\ufeff\u2028":
        assert character not in text
    if make is samples.hostile:
        assert "[red]rich[/red] [/]" in text  # markup is text, too
        assert len(text) < 60_000


def test_output_is_shown_from_its_end():
    text = told(samples.mixed())
    assert "Your program printed, in the end:" in text
    assert "  | took order-0039\n" in text
    assert "order-0003\n" not in text.split("Your program printed")[1]


def test_verbose_tells_every_failure_in_full():
    assert len(told(samples.mixed(), verbose=True)) > len(told(samples.mixed())) + 500


def test_glyphs_are_one_column_wide():
    for glyphs in (BOX, ASCII):
        for name in glyphs.__slots__:
            assert len(getattr(glyphs, name)) == 1
    assert all(getattr(ASCII, name).isascii() for name in ASCII.__slots__)
