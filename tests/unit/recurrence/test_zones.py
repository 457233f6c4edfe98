"""Time zones: names, transitions, and a tz database that changes."""

from __future__ import annotations

import os
import shutil
import zoneinfo
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib import resources
from pathlib import Path

import pytest

from duly.errors import InvalidSchedule
from duly.policy.recurrence import Cron, refresh_zones
from duly.policy.recurrence.zones import (
    Transition,
    load_zone,
    transition_around,
    transitions_between,
)


@pytest.mark.parametrize(
    ("name", "suggested"),
    [
        ("Berlin", "'Europe/Berlin'"),
        ("new york", "'America/New_York'"),
        ("europe/berlin", "'Europe/Berlin'"),
        ("America/NewYork", "'America/New_York'"),
        ("Europe/Kyev", "'Europe/Kyiv'"),
        ("Mars/Phobos", "'Europe/Berlin'"),
        ("", "'Europe/Berlin'"),
        ("Europe", "'Europe/"),
        ("../../etc/passwd", "'Europe/Berlin'"),
        ("/etc/localtime", "'Europe/Berlin'"),
        ("a\x00b", "'UTC'"),
        ("x" * 5000, "'UTC'"),
        ("localtime", "not the same on every machine"),
        ("right/Europe/Berlin", "not the same on every machine"),
    ],
)
def test_unknown_names_are_refused_and_near_ones_suggested(name: str, suggested: str) -> None:
    with pytest.raises(InvalidSchedule) as refused:
        Cron("0 0 * * *", name)
    assert suggested in str(refused.value)
    assert len(str(refused.value)) < 300


def test_transitions_of_a_year() -> None:
    berlin = load_zone("Europe/Berlin")
    hour = timedelta(hours=1)
    spring, autumn = transitions_between(
        berlin, datetime(2027, 1, 1, tzinfo=UTC), datetime(2028, 1, 1, tzinfo=UTC)
    )
    assert spring == Transition(datetime(2027, 3, 28, 1, tzinfo=UTC), hour, 2 * hour)
    assert autumn == Transition(datetime(2027, 10, 31, 1, tzinfo=UTC), 2 * hour, hour)
    assert spring.is_gap
    assert not autumn.is_gap
    assert transitions_between(berlin, spring.at, autumn.at) == [autumn]
    assert transition_around(berlin, spring.wall_before) == spring
    assert transition_around(berlin, spring.wall_after) is None
    assert transition_around(berlin, autumn.wall_after) == autumn
    assert transition_around(berlin, autumn.wall_before) is None
    assert transition_around(berlin, autumn.wall_before - timedelta(seconds=1)) == autumn


def test_a_transition_at_new_year_is_found_once() -> None:
    # The Phoenix Islands had no 31 December 1994 (or no 1 January 1995, in older databases).
    zone = load_zone("Pacific/Enderbury")
    found = transitions_between(
        zone, datetime(1993, 1, 1, tzinfo=UTC), datetime(1996, 1, 1, tzinfo=UTC)
    )
    assert [transition.after - transition.before for transition in found] == [timedelta(days=1)]
    assert abs(found[0].at - datetime(1995, 1, 1, tzinfo=UTC)) < timedelta(days=2)


def test_transitions_are_as_far_apart_as_assumed() -> None:
    """The engine takes two transitions of a zone to be more than two days apart.

    The zones named are those that come closest; DULY_EXHAUSTIVE=1 looks at all of them.
    """
    names = {"America/Recife", "Asia/Gaza", "Africa/Tunis", "Europe/Vienna", "Africa/Cairo"}
    if os.environ.get("DULY_EXHAUSTIVE") == "1":
        names = zoneinfo.available_timezones() - {"localtime"}
    shortest = timedelta(days=10_000)
    probe = timedelta(hours=20)
    for name in names:
        zone = load_zone(name)
        previous: datetime | None = None
        instant, offset = datetime(1940, 1, 1, tzinfo=UTC), None
        while instant.year < 2060:
            current = instant.astimezone(zone).utcoffset()
            if offset is not None and current != offset:
                if previous is not None:
                    shortest = min(shortest, instant - previous)
                previous = instant
            instant, offset = instant + probe, current
    assert shortest > timedelta(days=5)


@pytest.fixture
def other_database(tmp_path: Path) -> Iterator[Path]:
    """A tz database of its own, found before any other."""
    zoneinfo.reset_tzpath([str(tmp_path)])
    refresh_zones()
    yield tmp_path
    zoneinfo.reset_tzpath()
    refresh_zones()


def test_a_changed_database_is_picked_up(other_database: Path) -> None:
    def install(name: str) -> None:
        source = resources.files("tzdata").joinpath("zoneinfo", *name.split("/"))
        (other_database / "Test").mkdir(exist_ok=True)
        with resources.as_file(source) as file:
            shutil.copy(file, other_database / "Test" / "Town")

    install("Europe/Berlin")
    cron = Cron("0 12 * * *", "Test/Town")
    july = datetime(2027, 7, 1, tzinfo=UTC)
    assert cron.next_after(july) == july + timedelta(hours=10)
    assert cron.count_between(july - timedelta(days=365), july) == 365
    install("Asia/Tokyo")
    assert cron.next_after(july) == july + timedelta(hours=10)
    refresh_zones()
    assert cron.next_after(july) == july + timedelta(hours=3)
    assert cron.mask_of_day(july) == 1 << 3 * 3600
