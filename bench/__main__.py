"""`python -m bench`: measure, print the table, write JSON and plots where that is asked for."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import click

from bench import machine
from bench.places import NoDisk, on_disk
from bench.plot import write_plots
from bench.report import show, write
from bench.runner import ENGINES, run
from bench.scenarios import SCENARIOS
from bench.sizes import SIZES
from tests.support.postgres import PostgresUnavailable


def _names(known: tuple[str, ...], text: str, what: str) -> list[str]:
    """The names in the text, in the order of a run; all of them when it is empty."""
    wanted = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise click.BadParameter(f"no {what} {unknown[0]!r}; there are {', '.join(known)}")
    return [name for name in known if not wanted or name in wanted]


@click.command()
@click.option("--only", default="", metavar="A,B", help="These scenarios; all by default.")
@click.option("--engines", default="", metavar="A,B", help="These engines; all by default.")
@click.option("--size", type=click.Choice(list(SIZES)), default="normal", show_default=True)
@click.option(
    "--json",
    "target",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the figures to this file, and plots beside it.",
)
@click.option(
    "--svg",
    "drawing",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the plots here: NAME-batch.svg and NAME-backlog.svg for NAME.svg.",
)
@click.option("--peers", is_flag=True, help="Measure other task queues in the same run.")
def main(
    only: str,
    engines: str,
    size: str,
    target: Path | None,
    drawing: Path | None,
    peers: bool,
) -> None:
    """Measure Duly beside the bare engine."""
    # Ended by a signal, what was started is ended too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    scenarios = _names(tuple(SCENARIOS), only, "scenario")
    chosen = _names(ENGINES, engines, "engine")
    warning = machine.disturbance()
    if warning is not None:
        click.secho(warning, fg="yellow", err=True)
    try:
        result = run(
            scenarios,
            chosen,
            SIZES[size],
            on_disk(),
            lambda text: click.echo(text, err=True),
            peers,
        )
    except (NoDisk, PostgresUnavailable) as problem:
        raise click.ClickException(str(problem)) from problem
    show(result)
    written: list[Path] = []
    if target is not None:
        write(result, target)
        written.append(target)
    beside = drawing or target
    if beside is not None:
        written += write_plots(result.figures, beside)
    for path in written:
        click.echo(f"written: {path}", err=True)
    sys.exit(1 if result.failures else 0)


if __name__ == "__main__":
    main()
