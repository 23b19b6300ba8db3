"""``edgeproof``: the commands, and what becomes of errors.

Commands import what they need when they run: ``--help`` has to answer at once.
"""

from __future__ import annotations

import io
import math
import sys
from collections.abc import Callable
from typing import Any, NoReturn

import click

from edgeproof import __version__
from edgeproof.cli.signals import interrupt_on_signals
from edgeproof.errors import EdgeproofError, ExitCode

_EPILOG = (
    "Exit codes: 0 the gate holds, 1 a rule broke, 2 wrong use, 3 nothing was proved, 4 a subject could "
    "not be prepared, 5 a fault of edgeproof, 130 interrupted."
)


@click.group(epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="edgeproof")
def cli() -> None:
    """Prove that a PyTorch model exports, lowers and runs on every ExecuTorch backend."""


_flows = click.option(
    "--flows", multiple=True, metavar="NAME,GLOB...", help="Only these flows. Default: all."
)
_executorch = click.option(
    "--executorch",
    metavar="VERSION|WHEEL_FILE",
    help="The ExecuTorch to prove: a released version or a wheel file. Default: the newest known.",
)
_python = click.option(
    "--python",
    type=click.Choice(["3.11", "3.12", "3.13"]),
    help="The Python of the subjects. Default: the one edgeproof runs on.",
)
_subject = click.option(
    "--subject",
    metavar="current|PATH",
    help="Take an environment of yours as it is, instead of making clean ones.",
)


_seed = click.option("--seed", type=int, default=0, show_default=True, help="The run's seed.")
_json = click.option(
    "--json",
    "json_file",
    metavar="FILE",
    help="Write the report as JSON to FILE; one that lies there is removed first.",
)
_junit = click.option(
    "--junit", "junit_file", metavar="FILE", help="Write the verdicts as JUnit XML to FILE."
)


def _a_number(context: click.Context, option: click.Parameter, value: float | None) -> float | None:
    """Refuse NaN, which passes for every range: no stage would ever take too long."""
    if value is not None and math.isnan(value):
        raise click.BadParameter("nan is not a number.", context, option)
    return value


def _proving(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of every command that runs cells."""
    for option in reversed(
        (
            _executorch,
            _python,
            _subject,
            click.option(
                "--declare-not-run",
                "declared",
                metavar="FLOW=REASON",
                multiple=True,
                help="Accept that a flow ends not_run or skipped here. May be given several times.",
            ),
            _seed,
            click.option(
                "--workers",
                type=click.IntRange(min=1),
                help="How many workers run at once. Default: one for each CPU, at most four.",
            ),
            click.option(
                "--stage-timeout",
                type=click.FloatRange(min=0, min_open=True),
                callback=_a_number,
                metavar="SECONDS",
                help="End a cell whose stage takes longer. Default: a limit for each stage.",
            ),
            _json,
            _junit,
        )
    ):
        command = option(command)
    return command


@cli.command()
@_flows
@_proving
def smoke(flows: tuple[str, ...], **options: Any) -> None:
    """Take MobileNetV3 through every backend, in clean environments."""
    from edgeproof.cli import prove
    from edgeproof.flows.registry import in_smoke

    _exit(prove.smoke(flows or in_smoke(), **options))


@cli.command()
@click.argument("model", metavar="FILE.py:FACTORY|MODEL.pt2")
@click.option(
    "--flows", multiple=True, required=True, metavar="NAME,GLOB...", help="The flows to try."
)
@click.option("--condition", is_flag=True, help="Condition an untrained model first.")
@_proving
def check(model: str, flows: tuple[str, ...], condition: bool, **options: Any) -> None:
    """Take your own model through the flows you name.

    FACTORY is a function without arguments that returns (module, inputs) or (module, inputs,
    dynamic_shapes), or a dict with the keys module, args, kwargs, dynamic_shapes and calibration.
    MODEL.pt2 was written by torch.export.save.
    """
    from edgeproof.cli import prove

    _exit(prove.check(model, flows, condition=condition, **options))


@cli.command()
@click.option(
    "--suite",
    "suites",
    multiple=True,
    metavar="NAME,GLOB...",
    help="The suites whose cases to run: smoke, operators, models.",
)
@click.option("--flow", "flows", multiple=True, metavar="NAME,GLOB...", help="The flows.")
@click.option("--case", "cases", multiple=True, metavar="GLOB", help="Only these cases.")
@click.option("--dtype", "dtypes", multiple=True, metavar="DTYPE,...", help="Only these dtypes.")
@click.option(
    "--shard", metavar="K/N", help="Only the K-th of N parts; together they are the whole."
)
@click.option("--failed-from", metavar="REPORT", help="Only what did not pass in a JSON report.")
@click.option("--list", "list_only", is_flag=True, help="List the cells, and run none.")
@click.option("--exact", is_flag=True, help="Run every case alone, none in a bundle.")
@click.option(
    "--cached", is_flag=True, help="Take over what earlier runs found, where nothing changed."
)
@click.option(
    "--resume", metavar="REPORT", help="Go on with the run that was to write this report."
)
@_proving
def run(suites: tuple[str, ...], flows: tuple[str, ...], **options: Any) -> None:
    """Run whole suites over many flows.

    Small cases are lowered and run in bundles. A bundle only proves: what it does not is run alone.
    """
    from edgeproof.cli import run as running

    _exit(running.run(suites, flows, **options))


@cli.command()
@click.option(
    "--flow", "flows", multiple=True, required=True, metavar="NAME,GLOB...", help="What to stress."
)
@click.option(
    "--case",
    metavar="ID|FILE.py:FACTORY|MODEL.pt2",
    help="The model. Default: stress/residual_mlp, which has two delegates.",
)
@click.option(
    "--mode",
    "modes",
    multiple=True,
    default=("private",),
    show_default=True,
    metavar="MODE,...",
    help="What threads share: private, shared-program, shared-method, mixed, churn or reload.",
)
@click.option(
    "--threads",
    type=click.IntRange(min=1),
    help="Default: $EDGEPROOF_STRESS_THREADS, or 4.",
)
@click.option(
    "--iterations",
    type=click.IntRange(min=1),
    help="Of each thread, in each phase. Default: $EDGEPROOF_STRESS_ITERATIONS, or 10.",
)
@click.option(
    "--sanitize",
    type=click.Choice(["thread", "address"]),
    help="Build the driver and the bridge with a sanitizer.",
)
@click.option(
    "--reduce-seconds",
    type=click.FloatRange(min=0),
    callback=_a_number,
    default=300.0,
    show_default=True,
    help="How long to look for the smallest load that still fails; 0 does not look.",
)
@click.option(
    "--phase-timeout",
    type=click.FloatRange(min=0, min_open=True),
    callback=_a_number,
    metavar="SECONDS",
    help="End a phase that takes longer. Default: scales with the load.",
)
@_executorch
@_python
@_subject
@_seed
@_json
@_junit
def stress(flows: tuple[str, ...], **options: Any) -> None:
    """Load and run programs from many native threads, over a cold and a warm cache."""
    from edgeproof.cli import stress as stressing

    _exit(stressing.stress(flows, **options))


@cli.command()
@_flows
@_executorch
@_python
@_subject
def doctor(**options: Any) -> None:
    """Tell for each flow whether it can lower and run here, and what mends it if not."""
    from edgeproof.cli import doctor as examine

    _exit(examine.doctor(**options))


@cli.command()
def flows() -> None:
    """List the flows: what each is, and what it can do on this platform."""
    from edgeproof.cli import listings

    listings.flows()


@cli.group()
def subjects() -> None:
    """The environments edgeproof made to test in."""


@subjects.command("list")
def subjects_list() -> None:
    """List them: what each holds, how large it is, and whether it is still what was made."""
    from edgeproof.cli import listings

    _exit(listings.subjects())


@subjects.command("make")
@click.argument("stacks", nargs=-1)
@_executorch
@_python
def subjects_make(stacks: tuple[str, ...], **options: Any) -> None:
    """Make the subjects of STACKS, or of all stacks this platform has."""
    from edgeproof.cli import listings

    listings.make(stacks, **options)


@subjects.command("path")
@click.argument("stack")
@_executorch
@_python
def subjects_path(stack: str, executorch: str | None, python: str | None) -> None:
    """Print the Python of STACK's subject."""
    from edgeproof.cli import listings

    click.echo(listings.path(stack, executorch=executorch, python=python))


@subjects.command("remove")
@click.argument("stack", metavar="STACK|all")
def subjects_remove(stack: str) -> None:
    """Remove the subjects of STACK, or all of them."""
    from edgeproof.host.subjects import remove

    gone = remove(stack)
    for path in gone:
        click.echo(f"removed {path.name}")
    if not gone:
        click.echo(f"there is no subject of {stack}")


def _exit(code: int) -> NoReturn:
    raise click.exceptions.Exit(int(code))


def main() -> NoReturn:
    """Run a command; every error ends with its own exit code and a way to mend it."""
    interrupt_on_signals()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a name may hold what the terminal cannot show
            stream.reconfigure(errors="backslashreplace")
    try:
        code = cli.main(standalone_mode=False)
        sys.exit(int(code or 0))
    except click.exceptions.Exit as left:
        sys.exit(left.exit_code)
    except click.ClickException as wrong:
        wrong.show()
        sys.exit(ExitCode.USAGE)
    except EdgeproofError as failure:
        click.echo(f"edgeproof: {failure.message}", err=True)
        if failure.mend:
            click.echo(f"mend: {failure.mend}", err=True)
        sys.exit(failure.exit_code)
    except (KeyboardInterrupt, click.Abort):
        click.echo("edgeproof: interrupted", err=True)
        sys.exit(ExitCode.INTERRUPTED)
    except Exception:
        import traceback

        click.echo(traceback.format_exc(), err=True)
        click.echo(
            f"edgeproof {__version__}: this is a fault of edgeproof itself; please report it with "
            "the lines above",
            err=True,
        )
        sys.exit(ExitCode.INTERNAL)
