"""Changes of schedules: accounted up to now under what held so far, then another from now on."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import msgspec

from duly.errors import ScheduleConflict, UnknownSchedule
from duly.model.identifiers import new_id
from duly.model.schedule import Declaration, Definition, Look, ScheduleRecord
from duly.policy.schedule_changes import applied, begun, redefined, unchanged, with_jobs
from duly.policy.ticking import decide, unfinished
from duly.store.conversation import Conversation
from duly.store.schedule_verbs import ScheduleVerbs

TRIES = 50

Alteration = Callable[[Look], ScheduleRecord]


def look_at(
    store: ScheduleVerbs, schedule_id: str, now: datetime | None = None
) -> Conversation[Look]:
    """Look at a schedule; UnknownSchedule when there is none."""
    (look,) = yield store.look([schedule_id], now)
    if look is None:
        raise UnknownSchedule(schedule_id)
    assert isinstance(look, Look)
    return look


def change(
    store: ScheduleVerbs,
    schedule_id: str,
    alteration: Alteration,
    now: datetime | None = None,
    accounting: Callable[[ScheduleRecord], bool] = lambda schedule: True,
) -> Conversation[ScheduleRecord]:
    """Account for every tick up to now, then replace the schedule by what `alteration` makes of
    it, in the same transaction; answers the schedule as it is stored then.

    Without `accounting`, for a change that leaves its nominal times alone, ticks stay as they are.
    Whoever changes the schedule at the same moment does so before or after, never in between.
    """
    tries = 0
    while tries < TRIES:
        look = yield from look_at(store, schedule_id, now)
        step = unchanged(look)
        if accounting(look.schedule):
            step = with_jobs(look.schedule, decide(look, everything=True), new_id)
            if unfinished(look, step):
                # More ticks than one transaction takes: some now, the rest at the next look.
                (landed,) = yield store.fire([step], now)
                tries += not landed
                continue
        altered = alteration(msgspec.structs.replace(look, schedule=applied(look.schedule, step)))
        landed = yield store.change_schedule(altered, step, now)
        if landed:
            return (yield from look_at(store, schedule_id, now)).schedule
        tries += 1
    raise ScheduleConflict(schedule_id, "it was changed by others all the time: try again")


def redefine(
    store: ScheduleVerbs,
    schedule_id: str,
    define: Callable[[Definition], Definition],
    now: datetime | None = None,
    declaration: Declaration | None = None,
) -> Conversation[ScheduleRecord]:
    """Give a schedule another definition, that of a declaration if there is one; none of its
    ticks is lost or doubled."""
    fingerprint = None if declaration is None else declaration.fingerprint
    application = None if declaration is None else declaration.application
    return (
        yield from change(
            store,
            schedule_id,
            lambda look: redefined(
                look.schedule,
                define(look.schedule.definition),
                look.now,
                fingerprint,
                application,
            ),
            now,
            accounting=lambda schedule: (
                not define(schedule.definition).keeps_time_of(schedule.definition)
            ),
        )
    )


def enforce(
    store: ScheduleVerbs, declaration: Declaration, now: datetime | None = None
) -> Conversation[None]:
    """Make the stored schedule what the declaration says, or add it."""
    instant: datetime = yield store.clock(now)
    fresh = begun(
        declaration.schedule_id,
        declaration.definition,
        instant,
        declaration.fingerprint,
        declaration.application,
    )
    (added,) = yield store.add_schedules([fresh])
    if added:
        return
    (look,) = yield store.look([declaration.schedule_id], now)
    # One that was made at run time is not to be touched.
    if look is not None and look.schedule.declared:
        yield from redefine(
            store,
            declaration.schedule_id,
            lambda definition: declaration.definition,
            now,
            declaration,
        )
