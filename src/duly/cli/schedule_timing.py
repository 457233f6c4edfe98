"""The options that say when a schedule runs, and what they make."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import click

from duly.cli.session import Function
from duly.cli.times import calendar_date, moment
from duly.errors import InvalidOption
from duly.policy import duration
from duly.policy.recurrence import (
    CalendarInterval,
    Cron,
    Every,
    Moments,
    Recurrence,
    Rule,
    load_zone,
)
from duly.policy.recurrence.calendar_interval import ShortMonth
from duly.registry.scheduling import ScheduleOptions, recurrence_from

_SECOND = timedelta(seconds=1)
_CALENDAR_LENGTH = re.compile(r"([0-9]{1,6}) ?(day|week|month|year)s?")


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
            help="Cron and calendar: when the clocks repeat a time, which of the two counts.",
        ),
        click.option(
            "--gap",
            type=click.Choice(["next", "skip"]),
            help="Cron and calendar: when the clocks skip a time, run right after or not at all.",
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
            "--short-month",
            type=click.Choice(["last", "skip"]),
            help="--calendar, in a month without the anchor's day: on its last day (default), or "
            "not at all.",
        ),
        click.option(
            "--anchor",
            metavar="TIME",
            help="--calendar counts from this time, such as 2027-01-31T09:00.",
        ),
        click.option(
            "--calendar",
            metavar="LENGTH",
            help='As the calendar counts, such as "1 month" or "2 weeks"; needs --anchor.',
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
    calendar: str | None,
    anchor: str | None,
    short_month: Any,
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
    if calendar is not None:
        wall = _wall(anchor, zone)
        rules.append(_calendar_interval(calendar, wall, zone, short_month or "last", gap, fold))
    elif anchor is not None or short_month is not None:
        raise click.UsageError("--anchor and --short-month are about --calendar, and it is missing")
    if moments:
        rules.append(Moments(tuple(moment(text, "--at", zone) for text in moments)))
    if not rules:
        raise click.UsageError("say when: by a cron expression, --every, --calendar or --at")
    if (gap or fold) and not expressions and calendar is None:
        raise click.UsageError(
            "--gap and --fold are about cron expressions and --calendar, and there is neither"
        )
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


def _wall(anchor: str | None, zone: str) -> datetime:
    """The anchor as a time on the clocks of the zone."""
    if anchor is None:
        raise click.UsageError(
            "--calendar needs a time to count from: give it as --anchor, such as "
            "--anchor 2027-01-31T09:00"
        )
    return moment(anchor, "--anchor", zone).astimezone(load_zone(zone)).replace(tzinfo=None)


def _calendar_interval(
    text: str, anchor: datetime, zone: str, short_month: ShortMonth, gap: Any, fold: Any
) -> CalendarInterval:
    length = _CALENDAR_LENGTH.fullmatch(text.strip().lower())
    if length is None:
        raise InvalidOption(
            "--calendar",
            f"{text[:64]!a} is not a length in days, weeks, months or years: expected such as "
            "'1 month' or '2 weeks'",
        )
    unit: Any = length[2]
    return CalendarInterval(int(length[1]), unit, anchor, zone, short_month, gap, fold)


def _whole_seconds(text: str) -> int:
    length = duration.parse(text, "--every")
    if length < _SECOND or length % _SECOND:
        raise InvalidOption("--every", f"{text!a} is not in whole seconds: expected such as 5m")
    return length // _SECOND
