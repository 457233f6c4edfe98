"""Which declarations hold, while nodes with different versions of the code come and go.

Declared schedules belong to an application, by its name; an application that is down for a while
finds them as it left them, whatever others on the same database do meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

import msgspec

from duly.model.schedule import Declaration

GRACE = timedelta(seconds=60)
"""A declaration that no node has repeated for this long no longer counts."""

REMOVAL_GRACE = timedelta(hours=1)
"""A schedule that no node has declared for this long is removed."""


class Reconciliation(msgspec.Struct, frozen=True):
    """What is to be done for one application: declarations to put in force, names to remove, and
    names that a declaration shares with a schedule of somebody else, who keeps it: another
    application, or None for one that was made at run time."""

    enforce: tuple[Declaration, ...]
    remove: tuple[str, ...]
    taken: dict[str, str | None]


def reconcile(
    declarations: Iterable[Declaration], application: str, now: datetime
) -> Reconciliation:
    """Of the application's declarations seen within GRACE the one first seen last holds, for each
    schedule.

    So two versions that run at once agree on the newer, and a rollback takes over once nobody
    runs the newer any more. A schedule of another application is taken over only when that no
    longer declares it: the application was renamed, or the schedule moved.
    """
    by_schedule: dict[str, list[Declaration]] = {}
    for declaration in declarations:
        by_schedule.setdefault(declaration.schedule_id, []).append(declaration)
    enforce, remove, taken = [], [], {}
    for schedule_id, everybody in sorted(by_schedule.items()):
        mine = [each for each in everybody if each.application == application]
        if not mine:
            continue
        current = mine[0]
        fresh = [each for each in mine if now - each.last_seen <= GRACE]
        if current.exists and _kept_by_owner(everybody, application, now):
            taken[schedule_id] = current.owner
        elif fresh:
            holds = max(fresh, key=lambda each: (each.first_seen, each.fingerprint))
            if (holds.fingerprint, application) != (current.in_force, current.owner):
                enforce.append(holds)
        elif current.owner == application and all(
            now - each.last_seen > REMOVAL_GRACE for each in mine
        ):
            remove.append(schedule_id)
    return Reconciliation(tuple(enforce), tuple(remove), taken)


def _kept_by_owner(everybody: Iterable[Declaration], application: str, now: datetime) -> bool:
    """Whether the schedule that exists is somebody else's: made at run time, or declared by
    another application that was seen within GRACE."""
    return any(
        each.in_force is None
        or (each.application == each.owner != application and now - each.last_seen <= GRACE)
        for each in everybody
    )
