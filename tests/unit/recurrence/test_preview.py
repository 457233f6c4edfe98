"""Previews: fires with local time, distance and notes on DST."""

# ruff: noqa: DTZ001 - anchors are times on the wall.

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from duly.policy.recurrence import (
    CalendarInterval,
    Cron,
    Moments,
    PreviewedFire,
    Recurrence,
    every,
    preview,
)
from duly.policy.recurrence.wall_clock import Fold, Gap

HOUR = timedelta(hours=1)


def notes(cron: Cron, after: str, count: int) -> dict[str, tuple[str, ...]]:
    """Notes by local time, for the fires that have any."""
    recurrence = Recurrence((cron,), zone=cron.zone)
    fires = preview(recurrence, datetime.fromisoformat(after).replace(tzinfo=UTC), count)
    assert len(fires) == count
    return {f"{fire.local:%m-%d %H:%M}": fire.notes for fire in fires if fire.notes}


def test_local_time_utc_and_distance() -> None:
    recurrence = Recurrence((Cron("0 2 * * *", "America/New_York"),), zone="America/New_York")
    fires = preview(recurrence, datetime(2027, 3, 13, 12, tzinfo=UTC), 3)
    assert [f"{fire.local:%m-%d %H:%M %z}" for fire in fires] == [
        "03-14 03:00 -0400",
        "03-15 02:00 -0400",
        "03-16 02:00 -0400",
    ]
    assert [fire.utc.hour for fire in fires] == [7, 6, 6]
    assert [fire.since_previous for fire in fires] == [24 * HOUR, 23 * HOUR, 24 * HOUR]
    assert [fire.notes for fire in fires] == [
        ("02:00 does not exist on this day: fires at 03:00",),
        (),
        (),
    ]
    shown = preview(recurrence, fires[0].utc, 1, zone="Asia/Tokyo")
    assert f"{shown[0].local:%H:%M}" == "15:00"


def test_the_end_of_a_schedule_and_no_fire_before() -> None:
    first = datetime(2027, 1, 1, tzinfo=UTC)
    recurrence = Recurrence((Moments((first, first + HOUR)),))
    fires = preview(recurrence, first - HOUR, 10)
    assert [fire.since_previous for fire in fires] == [None, HOUR]
    assert preview(recurrence, first + HOUR, 10) == ()
    assert preview(recurrence, first, 0) == ()


@pytest.mark.parametrize(
    ("expression", "gap", "expected"),
    [
        (
            "30 2 * * *",
            None,
            {"03-28 03:00": ("02:30 does not exist on this day: fires at 03:00",)},
        ),
        (
            "15,45 2 * * *",
            None,
            {"03-28 03:00": ("02:15 and 02:45 do not exist on this day: fires at 03:00",)},
        ),
        (
            "0-59 2 * * *",
            None,
            {
                "03-28 03:00": (
                    "02:00 to 02:59 (60 times) do not exist on this day: fires at 03:00",
                )
            },
        ),
        ("30 2 * * *", "skip", {"03-29 02:30": ("02:30 does not exist on 2027-03-28: skipped",)}),
        (
            "*/30 * * * *",
            None,
            {"03-28 03:00": ("02:00 and 02:30 do not exist on 2027-03-28: skipped",)},
        ),
        ("30 4 * * *", None, {}),
    ],
)
def test_notes_on_a_gap(
    expression: str, gap: Gap | None, expected: dict[str, tuple[str, ...]]
) -> None:
    cron = Cron(expression, "Europe/Berlin", gap)
    assert notes(cron, "2027-03-27T21:00", 20 if "*/" in expression else 2) == expected


@pytest.mark.parametrize(
    ("expression", "fold", "expected"),
    [
        ("30 2 * * *", None, ["repeated hour: fires the first time only"]),
        ("30 2 * * *", "second", ["repeated hour: fires the second time only"]),
        (
            "30 2 * * *",
            "both",
            ["repeated hour: this is the first time", "repeated hour: this is the second time"],
        ),
        ("30 3 * * *", None, []),
    ],
)
def test_notes_on_an_overlap(expression: str, fold: Fold | None, expected: list[str]) -> None:
    recurrence = Recurrence((Cron(expression, "Europe/Berlin", fold=fold),))
    fires = preview(recurrence, datetime(2027, 10, 30, 12, tzinfo=UTC), 3)
    assert [note for fire in fires for note in fire.notes] == expected


def test_other_lengths() -> None:
    half = notes(Cron("45 1 * * *", "Australia/Lord_Howe"), "2027-04-03T12:00", 1)
    assert half == {"04-04 01:45": ("repeated 30 minutes: fires the first time only",)}
    day = notes(Cron("0 12 * * *", "Pacific/Apia"), "2011-12-30T00:00", 1)
    assert day == {
        "12-31 00:00": ("12:00 does not exist on this day: fires at 00:00 on 2011-12-31",)
    }


def test_calendar_intervals_have_notes_and_fixed_rates_none() -> None:
    daily = CalendarInterval(1, "day", datetime(2027, 1, 1, 2, 30), "Europe/Berlin")
    recurrence = Recurrence((daily, every(hours=1), Cron("30 2 * * *", "Europe/Berlin")))
    fires = preview(recurrence, datetime(2027, 3, 28, 0, 30, tzinfo=UTC), 2)
    # Two rules say the same: it is said once.
    assert [fire.notes for fire in fires] == [
        ("02:30 does not exist on this day: fires at 03:00",),
        (),
    ]


def test_a_preview_can_be_encoded() -> None:
    fires = preview(Recurrence((every(hours=1),)), datetime(2027, 1, 1, tzinfo=UTC), 2)
    assert msgspec.json.decode(msgspec.json.encode(fires), type=tuple[PreviewedFire, ...]) == fires
