"""`duly schedule preview`: when a rule fires, without a database."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import click

from duly.cli.rendering import tell, write_json
from duly.cli.schedule_timing import timing, timing_options
from duly.cli.schedule_view import fire_as_json, write_fires
from duly.cli.session import output_options
from duly.cli.times import moment
from duly.policy.recurrence import preview as previewed
from duly.policy.recurrence.instants import BEFORE_ALL

_MICROSECOND = timedelta(microseconds=1)


@click.command()
@click.argument("expressions", metavar="[EXPRESSION]", nargs=-1)
@timing_options
@click.option("--from", "first", metavar="TIME", help="From this time on, instead of now.")
@click.option(
    "--count",
    type=click.IntRange(1, 10_000),
    default=10,
    show_default=True,
    help="How many fires to show.",
)
@output_options
def preview(
    expressions: tuple[str, ...], first: str | None, count: int, as_json: bool, **given: Any
) -> None:
    """Show when a cron EXPRESSION or another rule fires. Needs no database.

    Each fire in local time and UTC, its distance from the one before, and what a change of the
    clocks does to it. Quote the expression: duly schedule preview "0 2 * * *"
    """
    if len(expressions) > 1:
        raise click.UsageError(
            "write the expression as one word, in quotes, so that the shell leaves its * alone: "
            'duly schedule preview "0 2 * * *"'
        )
    recurrence = timing(expressions, **given).recurrence()
    after = datetime.now(UTC)
    if first is not None:
        # The engine looks strictly after an instant; "from" includes it.
        after = max(moment(first, "--from", recurrence.zone), BEFORE_ALL) - _MICROSECOND
    fires = previewed(recurrence, after, count)
    if as_json:
        write_json(
            {
                "description": recurrence.describe(),
                "zone": recurrence.zone,
                "recurrence": recurrence,
                "fires": [fire_as_json(fire) for fire in fires],
            }
        )
        return
    tell(f"{recurrence.describe()}\n")
    write_fires(fires, recurrence.zone)
    if len(fires) < count:
        tell("It never fires after that." if fires else "It does not fire from then on.")
