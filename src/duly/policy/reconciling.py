"""Which declarations hold, while nodes with different versions of the code come and go."""

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
    """What is to be done: declarations to put in force, names to remove, and names that a
    declaration shares with a schedule made at run time, which keeps it."""

    enforce: tuple[Declaration, ...]
    remove: tuple[str, ...]
    taken: tuple[str, ...]


def reconcile(declarations: Iterable[Declaration], now: datetime) -> Reconciliation:
    """Of the declarations seen within GRACE the one first seen last holds, for each schedule.

    So two versions that run at once agree on the newer, and a rollback takes over once nobody
    runs the newer any more.
    """
    by_schedule: dict[str, list[Declaration]] = {}
    for declaration in declarations:
        by_schedule.setdefault(declaration.schedule_id, []).append(declaration)
    enforce, remove, taken = [], [], []
    for schedule_id, all_of_it in sorted(by_schedule.items()):
        current = all_of_it[0]
        if current.exists and current.in_force is None:
            taken.append(schedule_id)
            continue
        fresh = [each for each in all_of_it if now - each.last_seen <= GRACE]
        if fresh:
            holds = max(fresh, key=lambda each: (each.first_seen, each.fingerprint))
            if holds.fingerprint != current.in_force:
                enforce.append(holds)
        elif current.exists and all(now - each.last_seen > REMOVAL_GRACE for each in all_of_it):
            remove.append(schedule_id)
    return Reconciliation(tuple(enforce), tuple(remove), tuple(taken))
