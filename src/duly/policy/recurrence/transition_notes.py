"""What a transition did to a wall-clock rule's fires, in words for people."""

from __future__ import annotations

from datetime import datetime

from duly.policy.recurrence.english import duration, listed
from duly.policy.recurrence.instants import SECOND
from duly.policy.recurrence.wall_clock import Fold, NominalTimes, WallClock
from duly.policy.recurrence.zones import Transition, transition_around, transitions_between

_MOST_TIMES = 3
_FOLD_NOTES: dict[Fold, tuple[str, str]] = {
    "first": ("fires the first time only", "fires the first time only"),
    "second": ("fires the second time only", "fires the second time only"),
    "both": ("this is the first time", "this is the second time"),
}


def notes_on(clock: WallClock, previous: datetime, fire: datetime) -> tuple[str, ...]:
    """Notes on a fire of `clock`, given the instant of the fire before it.

    They tell what was moved to this fire, what was left out since the previous one, and which
    pass of a repeated hour this is.
    """
    notes = []
    for transition in transitions_between(clock.zone, previous, fire):
        if transition.is_gap:
            times = _times_in(clock.nominal, transition)
            if times and clock.gap == "skip":
                day = transition.wall_before.date()
                notes.append(f"{times} on {day}: skipped")
            elif times and transition.at == fire:
                at = _shown(transition.wall_after)
                if transition.wall_after.date() != transition.wall_before.date():
                    at = f"{at} on {transition.wall_after.date()}"
                notes.append(f"{times} on this day: fires at {at}")
    local = fire.astimezone(clock.zone)
    around = transition_around(clock.zone, local.replace(tzinfo=None, fold=0))
    if around is not None and not around.is_gap:
        length = duration(int((around.before - around.after) / SECOND)).removeprefix("1 ")
        notes.append(f"repeated {length}: {_FOLD_NOTES[clock.fold][local.fold]}")
    return tuple(notes)


def _times_in(nominal: NominalTimes, gap: Transition) -> str:
    """The nominal times inside a gap, "" when there are none: "02:30 does not exist"."""
    count = nominal.count(gap.wall_before, gap.wall_after)
    if count == 0:
        return ""
    times: list[str] = []
    time = nominal.at_or_after(gap.wall_before)
    while time is not None and time < gap.wall_after and len(times) < _MOST_TIMES:
        times.append(_shown(time))
        time = nominal.at_or_after(time + SECOND)
    if count == 1:
        return f"{times[0]} does not exist"
    if count <= _MOST_TIMES:
        return f"{listed(times)} do not exist"
    last = nominal.at_or_before(gap.wall_after - SECOND)
    assert last is not None, "there are times in the gap"
    return f"{times[0]} to {_shown(last)} ({count:,} times) do not exist"


def _shown(wall: datetime) -> str:
    return f"{wall:%H:%M:%S}" if wall.second else f"{wall:%H:%M}"
