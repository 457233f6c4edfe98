"""The engine against brute force, at the UTC-offset transitions of every IANA zone, 2020 to 2037.

The ordinary run takes every zone that has transitions, a few of them each, and a few random
expressions at each, always the same ones. DULY_EXHAUSTIVE=1 takes every transition and more
expressions (some minutes).
"""

from __future__ import annotations

import os
import random
from bisect import bisect_right
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import pairwise
from zoneinfo import ZoneInfo, available_timezones

import pytest

from duly.policy.recurrence import Cron
from duly.policy.recurrence.wall_clock import Fold, Gap
from tests.support.brute_force_cron import Walk, transitions
from tests.unit.recurrence.expressions import random_expression

EXHAUSTIVE = os.environ.get("DULY_EXHAUSTIVE") == "1"
FIRST_YEAR, LAST_YEAR = 2020, 2037
MINUTE, SECOND, DAY = timedelta(minutes=1), timedelta(seconds=1), timedelta(days=1)
# No two transitions of a zone are within a week; the exhaustive run does not rely on that.
PROBE = timedelta(hours=12) if EXHAUSTIVE else timedelta(days=5)
SHARDS = 8

POLICIES: list[tuple[Gap | None, Fold | None]] = [
    (None, None),
    (None, None),
    (None, None),
    ("skip", None),
    ("next", "both"),
    ("skip", "first"),
    ("next", "second"),
    ("skip", "second"),
    (None, "both"),
]


@cache
def zones_by_behaviour() -> list[tuple[str, list[datetime]]]:
    """One zone of each group that does the same from 2020 to 2037, with its transitions."""
    groups: dict[object, tuple[str, list[datetime]]] = {}
    for name in sorted(available_timezones() - {"localtime"}):
        zone = ZoneInfo(name)
        found = transitions(zone, FIRST_YEAR, LAST_YEAR, PROBE)
        begin = datetime(FIRST_YEAR, 1, 1, tzinfo=UTC)
        offsets = [moment.astimezone(zone).utcoffset() for moment in (begin, *found)]
        groups.setdefault((tuple(found), tuple(offsets)), (name, found))
    return list(groups.values())


def check(cron: Cron, walk: Walk, instants: list[datetime]) -> None:
    """Every answer of the engine about the walked window must be that of the walk."""
    fires = walk.fires(cron.expression, cron.gap, cron.fold)
    for instant in instants:
        index = bisect_right(fires, instant)
        upcoming = cron.next_after(instant)
        assert upcoming is None or upcoming > instant
        if index < len(fires):
            assert upcoming == fires[index], ("next", cron, instant)
        else:
            assert upcoming is None or upcoming > walk.end, ("next", cron, instant)
        past = cron.last_at_or_before(instant)
        if index > 0:
            assert past == fires[index - 1], ("last", cron, instant)
        else:
            assert past is None or past < walk.start, ("last", cron, instant)
    for earlier, later in pairwise(sorted(instants)):
        expected = bisect_right(fires, later) - bisect_right(fires, earlier)
        assert cron.count_between(earlier, later) == expected, ("count", cron, earlier, later)
    day = (walk.start + DAY - SECOND).replace(hour=0, minute=0, second=0)
    while day + DAY <= walk.end:
        expected_mask = 0
        for fire in fires:
            if day <= fire < day + DAY:
                expected_mask |= 1 << int((fire - day) / SECOND)
        assert cron.mask_of_day(day) == expected_mask, ("mask", cron, day)
        day += DAY


def instants_around(
    transition: datetime, walk: Walk, choose: random.Random, number: int
) -> list[datetime]:
    """Instants of the window, most of them inside the repeated hour or beside the gap."""
    instants = [transition - SECOND, transition, transition + timedelta(microseconds=1)]
    for _ in range(number):
        spread = choose.choice([3_600, 7_200, 86_400])
        moment = transition + timedelta(seconds=choose.randint(-spread, spread))
        instants.append(min(max(moment, walk.start), walk.end))
    return instants


def cron_near(
    choose: random.Random, name: str, transition: datetime, *, seconds: bool = False
) -> Cron:
    """A random schedule that has times close to the transition, as the wall shows it."""
    zone = ZoneInfo(name)
    before = (transition - SECOND).astimezone(zone).replace(tzinfo=None) + SECOND
    after = transition.astimezone(zone).replace(tzinfo=None)
    gap, fold = choose.choice(POLICIES)
    text = random_expression(choose, choose.choice([before, after]), seconds=seconds)
    return Cron(text, name, gap, fold)


@pytest.mark.parametrize("shard", range(SHARDS))
@pytest.mark.timeout(3600)
def test_every_zone_minute_by_minute(shard: int) -> None:
    per_zone, expressions, instants = (1000, 24, 12) if EXHAUSTIVE else (4, 6, 6)
    for name, found in zones_by_behaviour()[shard::SHARDS]:
        choose = random.Random(f"minutes {name}")
        for transition in choose.sample(found, min(per_zone, len(found))):
            # Whole minutes that are not whole hours, so that the window's edges are no one's time.
            start = transition - timedelta(hours=choose.randrange(25, 35), minutes=7)
            walk = Walk(ZoneInfo(name), start, transition + timedelta(hours=51, minutes=11), MINUTE)
            for _ in range(expressions):
                cron = cron_near(choose, name, transition)
                check(cron, walk, instants_around(transition, walk, choose, instants))


@pytest.mark.parametrize("shard", range(SHARDS))
@pytest.mark.timeout(3600)
def test_every_zone_second_by_second(shard: int) -> None:
    zones = [(name, found) for name, found in zones_by_behaviour() if found][shard::SHARDS]
    per_zone, expressions = (4, 12) if EXHAUSTIVE else (1, 2)
    zones = zones if EXHAUSTIVE else zones[:3]
    for name, found in zones:
        choose = random.Random(f"seconds {name}")
        for transition in choose.sample(found, min(per_zone, len(found))):
            walk = Walk(
                ZoneInfo(name),
                transition - timedelta(hours=3),
                transition + timedelta(hours=3),
                SECOND,
                margin=timedelta(hours=3),
            )
            for _ in range(expressions):
                cron = cron_near(choose, name, transition, seconds=True)
                check(cron, walk, instants_around(transition, walk, choose, 10))


def test_zones_without_transitions_agree_too() -> None:
    for name, found in zones_by_behaviour():
        if not found:
            choose = random.Random(f"still {name}")
            start = datetime(2031, 5, 30, 3, 7, tzinfo=UTC)
            walk = Walk(ZoneInfo(name), start, start + timedelta(hours=50), MINUTE)
            cron = cron_near(choose, name, start + DAY)
            check(cron, walk, instants_around(start + DAY, walk, choose, 4))
