"""The next fires of a recurrence, for people: local time, UTC, distance, and what DST does."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from duly.policy.recurrence.calendar_interval import CalendarInterval
from duly.policy.recurrence.combined import Recurrence
from duly.policy.recurrence.cron import Cron
from duly.policy.recurrence.instants import SECOND, whole_second
from duly.policy.recurrence.transition_notes import notes_on
from duly.policy.recurrence.zones import load_zone


class PreviewedFire(msgspec.Struct, frozen=True):
    """One fire to come.

    `utc` and `local` are the same instant; `local` is in the zone the preview was asked for.
    `since_previous` is the distance to the fire before, also for the first one shown, and None
    when there is no fire before. `notes` are sentences on gaps and overlaps, each once.
    """

    utc: datetime
    local: datetime
    since_previous: timedelta | None
    notes: tuple[str, ...]


def preview(
    recurrence: Recurrence, after: datetime, count: int, zone: str | None = None
) -> tuple[PreviewedFire, ...]:
    """Up to `count` fires strictly after the instant, shown in `zone` or the recurrence's own."""
    shown_in = load_zone(zone or recurrence.zone)
    previous = recurrence.last_at_or_before(after)
    fires: list[PreviewedFire] = []
    position = whole_second(after)
    while len(fires) < count:
        fire = recurrence.next_after(position)
        if fire is None:
            break
        fires.append(
            PreviewedFire(
                utc=fire,
                local=fire.astimezone(shown_in),
                since_previous=None if previous is None else fire - previous,
                notes=_notes(recurrence, position if previous is None else previous, fire),
            )
        )
        previous = position = fire
    return tuple(fires)


def _notes(recurrence: Recurrence, previous: datetime, fire: datetime) -> tuple[str, ...]:
    notes: list[str] = []
    for rule in recurrence.rules:
        if isinstance(rule, Cron | CalendarInterval) and rule.next_after(fire - SECOND) == fire:
            notes += notes_on(rule.wall_clock(), previous, fire)
    return tuple(dict.fromkeys(notes))
