"""What a person can type: words and options here, the work in the modules beside it.

Each command imports what it needs when it runs, so that `--help` and `list` come at once.
"""

# ruff: noqa: PLC0415 - see above: a command's imports are part of the command

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

EXIT_CODES = "Exit codes: 0 pass, 1 fail, 2 usage, 3 our fault, 4 inconclusive, 130 interrupted (nothing is decided)."

app = typer.Typer(
    name="ackademy",
    help="A course about message-driven backends in Python, graded on real brokers.",
    epilog=EXIT_CODES,
    add_completion=False,
    pretty_exceptions_enable=False,  # errors are ours to explain, see `failures`
    invoke_without_command=True,
)
brokers_app = typer.Typer(help="Keep servers running between checks.", no_args_is_help=True)
author_app = typer.Typer(help="Prove that an exercise grades rightly.", no_args_is_help=True)
app.add_typer(brokers_app, name="brokers")
app.add_typer(author_app, name="author")

ExerciseName = Annotated[
    str | None,
    typer.Argument(metavar="EXERCISE", help="Any unique part of its path: worker_pool, 03/01."),
]
EngineName = Annotated[str | None, typer.Option("--engine", help="sim, nats, rabbitmq or kafka.")]
EngineNames = Annotated[
    list[str] | None, typer.Option("--engine", help="May be given again. Default: all it has.")
]
JsonFile = Annotated[Path | None, typer.Option("--json", help="Write the outcome here as JSON.")]
Jobs = Annotated[int, typer.Option("--jobs", min=1, help="Gradings at a time.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before a download.")]


def _version(wanted: bool) -> None:  # noqa: FBT001 - the shape of an option's callback
    if wanted:
        from autograder import __version__

        typer.echo(f"ackademy {__version__}")
        raise typer.Exit


@app.callback()
def start(
    context: typer.Context,
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say which one.")
    ] = False,
) -> None:
    """A course about message-driven backends in Python, graded on real brokers."""
    if context.invoked_subcommand is None:
        from autograder.cli import overview

        overview.here()


@app.command("list", epilog=EXIT_CODES)
def list_exercises(name: ExerciseName = None) -> None:
    """Every exercise and how far you are; with a name, its guarantees."""
    from autograder.cli import overview

    overview.listing(name)


@app.command(epilog=EXIT_CODES)
def check(
    exercise: ExerciseName = None,
    *,
    engine: EngineName = None,
    provider: Annotated[
        str | None,
        typer.Option(
            help="Where the server comes from: external, compose, warm, embedded, local, container."
        ),
    ] = None,
    submission: Annotated[
        Path | None,
        typer.Option(help="Grade this file in place of yours, on a real broker at once."),
    ] = None,
    seed: Annotated[int | None, typer.Option(min=1, help="Repeat the runs of this seed.")] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, max=1000, help="How many seeds; 3 unless --seed is given.")
    ] = None,
    json_file: JsonFile = None,
    html_file: Annotated[
        Path | None, typer.Option("--html", help="Write the report here as one HTML page.")
    ] = None,
    yes: Yes = False,
    visible: Annotated[
        bool, typer.Option("--visible", help="Run the tests you can read, not the hidden ones.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Every failure in full.")
    ] = False,
) -> None:
    """Grade your module, in a simulation and then on a real broker, and say what it does not keep.

    What names an engine, a provider, a seed or a file gets just that, and no simulation before it.
    Without a name: the exercise whose folder you are in, else the one you checked last.
    """
    from autograder.cli import checking

    order = checking.Order(
        exercise=exercise,
        engine=engine,
        provider=provider,
        submission=submission,
        seed=seed,
        seeds=seeds,
        json_file=json_file,
        html_file=html_file,
        yes=yes,
        visible=visible,
        verbose=verbose,
    )
    raise typer.Exit(checking.check(order))


@app.command(epilog=EXIT_CODES)
def replay(
    run: Annotated[
        str,
        typer.Argument(metavar="RUN", help="A scenario, @ and a seed: test_the_process_dies@7."),
    ],
    exercise: ExerciseName = None,
    *,
    submission: Annotated[
        Path | None, typer.Option(help="Run this file in place of yours.")
    ] = None,
    visible: Annotated[
        bool, typer.Option("--visible", help="A scenario of the tests you can read.")
    ] = False,
) -> None:
    """One simulated run again, event by event, the same each time."""
    from autograder.cli import replaying
    from autograder.cli.checking import Order

    order = Order(exercise=exercise, submission=submission, visible=visible)
    raise typer.Exit(replaying.replay(run, order))


@app.command(epilog=EXIT_CODES)
def hint(
    name: Annotated[
        str | None,
        typer.Argument(metavar="EXERCISE|GUARANTEE", help="Default: what failed last."),
    ] = None,
    rung: Annotated[
        int | None, typer.Option(min=1, max=3, help="Show this rung: 1 asks, 2 explains, 3 names.")
    ] = None,
) -> None:
    """The next hint for the guarantee that failed: three rungs, one a call."""
    from autograder.cli import hinting

    hinting.hint(name, rung)


@app.command(epilog=EXIT_CODES)
def docs(
    *,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = 8000,
    build: Annotated[
        bool, typer.Option("--build/--no-build", help="Bring the site up to date first.")
    ] = True,
) -> None:
    """Serve the whole site on this machine: lessons, exercises, reference. Ctrl-C ends it."""
    from autograder.cli import reading

    reading.docs(port, build=build)


@app.command(epilog=EXIT_CODES)
def lesson(
    name: ExerciseName = None,
    *,
    show: Annotated[bool, typer.Option("--open/--no-open", help="Open it in a browser.")] = True,
) -> None:
    """Open the lesson of an exercise, and say where its page is."""
    from autograder.cli import reading

    reading.lesson(name, show=show)


@app.command(epilog=EXIT_CODES)
def doctor(
    *,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """What this machine has for checks, what it lacks, and what mends it."""
    from autograder.cli import doctor as examining

    raise typer.Exit(examining.doctor(as_json=as_json))


@brokers_app.command("up", epilog=EXIT_CODES)
def brokers_up(
    engines: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME", help="nats, rabbitmq, kafka, postgres, valkey. Default: nats."
        ),
    ] = None,
    *,
    provider: Annotated[
        str | None, typer.Option(help="embedded, local, compose or container.")
    ] = None,
    yes: Yes = False,
) -> None:
    """Start servers and leave them running: later checks start at once."""
    from autograder.cli import serving

    serving.up(engines or ["nats"], provider, yes=yes)


@brokers_app.command("down", epilog=EXIT_CODES)
def brokers_down(
    engines: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="The same names. Default: all.")
    ] = None,
) -> None:
    """Stop the servers that `brokers up` started, and compose services."""
    from autograder.cli import serving

    serving.down(engines or [])


@brokers_app.command("status", epilog=EXIT_CODES)
def brokers_status() -> None:
    """What runs, what could run here, and what is missing for the rest."""
    from autograder.cli import serving

    serving.status()


@brokers_app.command("install", epilog=EXIT_CODES)
def brokers_install(
    engine: Annotated[str, typer.Argument(metavar="ENGINE", help="kafka.")] = "kafka",
) -> None:
    """Fetch what an embedded server needs: for Kafka, Apache's own jars, once."""
    from autograder.cli import serving

    serving.install(engine)


@author_app.command("verify", epilog=EXIT_CODES)
def author_verify(
    path: ExerciseName = None,
    *,
    engine: EngineNames = None,
    seeds: Annotated[int, typer.Option(min=1, max=1000, help="How many seeds per program.")] = 3,
    jobs: Jobs = 2,
    json_file: JsonFile = None,
    yes: Yes = False,
) -> None:
    """The kill matrix: the skeleton fails, right programs pass, mutants die for their reason."""
    from autograder.cli import proving

    raise typer.Exit(
        proving.verify(path, engine or [], seeds=seeds, jobs=jobs, json_file=json_file, yes=yes)
    )


@author_app.command("drill", epilog=EXIT_CODES)
def author_drill(
    path: Annotated[str, typer.Argument(metavar="EXERCISE", help="Any unique part of its path.")],
    *,
    runs: Annotated[int, typer.Option(min=1, help="Gradings per program, a seed each.")] = 50,
    load: Annotated[bool, typer.Option("--load", help="Keep every core busy meanwhile.")] = False,
    engine: EngineNames = None,
    only: Annotated[
        list[str] | None,
        typer.Option(help="reference, variants, mutants or a program. May be given again."),
    ] = None,
    first_seed: Annotated[int, typer.Option(min=1, help="Runs count seeds up from here.")] = 1,
    jobs: Jobs = 1,
    json_file: JsonFile = None,
    yes: Yes = False,
) -> None:
    """Repeat right and wrong programs, and count how often the grader errs."""
    from autograder.cli import proving

    plan = proving.DrillPlan(
        engines=engine or [],
        runs=runs,
        load=load,
        only=[name.strip() for each in only or [] for name in each.split(",") if name.strip()],
        first_seed=first_seed,
        jobs=jobs,
        json_file=json_file,
        yes=yes,
    )
    raise typer.Exit(proving.drill(path, plan))
