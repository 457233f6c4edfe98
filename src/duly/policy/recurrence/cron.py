"""Cron in a time zone."""

from __future__ import annotations

from duly.policy.recurrence.cron_description import describe_cron
from duly.policy.recurrence.cron_parser import parse
from duly.policy.recurrence.wall_clock import Fold, Gap, WallClock, check_policies
from duly.policy.recurrence.wall_clock_rule import WallClockRule
from duly.policy.recurrence.zones import load_zone


class Cron(WallClockRule, frozen=True, tag="cron"):
    """A cron expression in an IANA zone.

    What happens to times that a transition skips or repeats: unless `gap` or `fold` say otherwise,
    a fixed-time expression (no `*` in its minute and hour fields) fires once, at the first instant
    after a gap, and the first time in an overlap (`gap="next"`, `fold="first"`); any other follows
    the clock on the wall as it is (`gap="skip"`, `fold="both"`).

    Malformed text, an expression that no date matches and an unknown zone raise InvalidSchedule.
    Cost: `next_after` and `last_at_or_before` one look at each month passed over; `count_between`
    one look at each month and each transition in between.
    """

    expression: str
    zone: str = "UTC"
    gap: Gap | None = None
    fold: Fold | None = None

    def __post_init__(self) -> None:
        parse(self.expression)
        load_zone(self.zone)
        check_policies(self.gap, self.fold)

    def describe(self) -> str:
        """The rule in plain English, such as "every day at 02:30 Europe/Berlin"."""
        return describe_cron(parse(self.expression), self.zone)

    def wall_clock(self) -> WallClock:
        """The expression's times in the zone, with the policies that are in force."""
        expression = parse(self.expression)
        gap: Gap = self.gap or ("next" if expression.fixed_time else "skip")
        fold: Fold = self.fold or ("first" if expression.fixed_time else "both")
        return WallClock(expression, load_zone(self.zone), gap, fold)
