"""The options that say when a schedule runs, and what they make."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import click

from duly.cli.session import Function
from duly.cli.times import calendar_date, moment
from duly.errors import InvalidOption
from duly.policy import duration
from duly.policy.recurrence import Cron, Every, Moments, Recurrence, Rule
from duly.registry.scheduling import ScheduleOptions, recurrence_from

_SECOND = timedelta(seconds=1)


class Timing(NamedTuple):
    """When a schedule runs: its rules, and the options about time."""

    rules: Sequence[Rule]
    options: ScheduleOptions

    def recurrence(self) -> Recurrence:
        """Both in one. InvalidSchedule when it can never fire."""
        made = recurrence_from(self.rules, self.options)
        made.check_fires()
        return made


def timing_options(function: Function) -> Function:
    """The options about time; `timing` reads what they give."""
    for option in (
        click.option("--jitter", metavar="DURATION", help="Each is due up to this much later."),
        click.option(
            "--exclude-cron",
            metavar="EXPRESSION",
            multiple=True,
            help="Not when this cron expression fires; several are allowed.",
        ),
        click.option(
            "--exclude",
            "excluded",
            metavar="DATE",
            multiple=True,
            help="Not on this date, such as 2026-12-25; several are allowed.",
        ),
        click.option(
            "--max-fires",
            type=click.IntRange(1),
            metavar="N",
            help="So many times at most, counted from --start or now.",
        ),
        click.option("--end", metavar="TIME", help="Not after this time; a date: its whole day."),
        click.option("--start", metavar="TIME", help="Not before this time."),
        click.option(
            "--fold",
            type=click.Choice(["first", "second", "both"]),
            help="Cron: when the clocks repeat a time, which of the two counts.",
        ),
        click.option(
            "--gap",
            type=click.Choice(["next", "skip"]),
            help="Cron: when the clocks skip a time, run right after the gap or not at all.",
        ),
        click.option(
            "--tz",
            "zone",
            metavar="ZONE",
            default="UTC",
            show_default=True,
            help="The time zone of cron expressions, dates, and times without an offset.",
        ),
        click.option(
            "--at",
            "moments",
            metavar="TIME",
            multiple=True,
            help="At this time, such as 2026-11-16T09:00; several are allowed.",
        ),
        click.option(
            "--every", metavar="DURATION", help="At a fixed rate, such as 5m or 1h30m, on a grid."
        ),
    ):
        function = option(function)
    return function


def timing(
    expressions: Sequence[str],
    *,
    every: str | None,
    moments: Sequence[str],
    zone: str,
    gap: Any,
    fold: Any,
    start: str | None,
    end: str | None,
    max_fires: int | None,
    excluded: Sequence[str],
    exclude_cron: Sequence[str],
    jitter: str | None,
) -> Timing:
    """What cron expressions and the options make. A UsageError when they name no time at all."""
    rules: list[Rule] = [Cron(text, zone, gap, fold) for text in expressions]
    if every is not None:
        rules.append(Every(_whole_seconds(every)))
    if moments:
        rules.append(Moments(tuple(moment(text, "--at", zone) for text in moments)))
    if not rules:
        raise click.UsageError("say when: by a cron expression, --every or --at")
    if (gap or fold) and not expressions:
        raise click.UsageError("--gap and --fold are about cron expressions, and there is none")
    given = ScheduleOptions(tz=zone)
    if start is not None:
        given["start"] = moment(start, "--start", zone)
    if end is not None:
        given["end"] = moment(end, "--end", zone, last=True)
    if max_fires is not None:
        given["maximum_fires"] = max_fires
        given.setdefault("start", datetime.now(UTC))
    if excluded:
        given["excluded_dates"] = [calendar_date(text, "--exclude") for text in excluded]
    if exclude_cron:
        given["excluded_rules"] = [Cron(text, zone) for text in exclude_cron]
    if jitter is not None:
        given["jitter"] = duration.parse(jitter, "--jitter")
    return Timing(rules, given)


def _whole_seconds(text: str) -> int:
    length = duration.parse(text, "--every")
    if length < _SECOND or length % _SECOND:
        raise InvalidOption("--every", f"{text!a} is not in whole seconds: expected such as 5m")
    return length // _SECOND
