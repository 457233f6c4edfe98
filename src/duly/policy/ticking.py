"""What becomes of a schedule's ticks: a pure function of the schedule, its live jobs and the time.

Catch-up decides which ticks are owed, overlap what happens to an owed one while a job of the
schedule is live. Every tick that has come gets exactly one row. A run of ticks that share a fate
is one row, found by arithmetic; ticks that are fired or buffered are told one by one, up to
MOST_TICKS in a step, and a step that leaves some for the next is due again at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import lru_cache
from zlib import crc32

import msgspec

from duly.model.schedule import (
    MOST_BUFFERED_SHOWN,
    CatchUp,
    Look,
    Overlap,
    ScheduleRecord,
    Step,
    Tick,
    TickKind,
    TickOutcome,
)
from duly.policy.recurrence import FireRange, Recurrence

MOST_TICKS = 200
GRACE = timedelta(seconds=60)
LONGEST_REST = timedelta(days=1)
"""Every schedule that goes on is looked at this often: a changed tz database moves its next time,
and an end that it waits for may have been written by a release that knows no schedules."""

LIVE = "a job of the schedule was live"
ONE_WAITS = "a job of the schedule was live and another tick waits for its end"
PAUSED = "paused"

_MICROSECOND = timedelta(microseconds=1)
_SECOND = timedelta(seconds=1)
# How many ticks of the jitter window are judged one by one in a step.
_MOST_JITTERED = 1_000


@lru_cache(maxsize=4096)
def recurrence_of(text: str) -> Recurrence:
    """The recurrence of a stored schedule."""
    return msgspec.json.decode(text, type=Recurrence)


def decide(look: Look, everything: bool = False) -> Step:
    """The next step of a schedule. Jobs are not identified yet, see `with_jobs`.

    With `everything`, jitter is not waited for: every nominal time up to now is accounted for, as
    it must be before the schedule changes. While the step is `unfinished`, another has to follow.
    """
    if look.schedule.paused:
        return _while_paused(look)
    if look.schedule.definition.after_finish is not None:
        return _fixed_delay(look)
    return _by_rule(look, everything)


def unfinished(look: Look, step: Step) -> bool:
    """Whether the step leaves ticks that are due now."""
    return step.due_at is not None and step.due_at <= look.now


def due_time(schedule: ScheduleRecord, nominal: datetime | None, now: datetime) -> datetime | None:
    """When to look at a schedule whose next tick has this nominal time."""
    if nominal is None:
        return None
    recurrence = recurrence_of(schedule.definition.recurrence)
    return min(recurrence.due_at(schedule.id, nominal), now + rest_of(schedule.id))


def rest_of(schedule_id: str) -> timedelta:
    """For how long nobody needs to look at a schedule: half of LONGEST_REST to all of it.

    It differs from schedule to schedule: thousands that were made at one moment must not all be
    looked at in one moment of each day, with ticks that are due waiting behind them.
    """
    return LONGEST_REST * (0.5 + crc32(schedule_id.encode()) / 2**33)


class _Fires:
    """The fires of a recurrence. One decision asks for the same more than once, and most often
    about a single tick: answers are remembered, and runs are counted only where there are any."""

    def __init__(self, recurrence: Recurrence) -> None:
        self.jitter = timedelta(seconds=recurrence.jitter_seconds)
        self._recurrence = recurrence
        self._next: dict[datetime, datetime | None] = {}

    def next_after(self, instant: datetime) -> datetime | None:
        """See Recurrence."""
        if instant not in self._next:
            self._next[instant] = self._recurrence.next_after(instant)
        return self._next[instant]

    def between(self, after: datetime, until: datetime) -> FireRange | None:
        """The fires with after < fire <= until; None when there are none."""
        first = self.next_after(after)
        if first is None or first > until:
            return None
        second = self.next_after(first)
        if second is None or second > until:
            return FireRange(first, first, 1)
        return self._recurrence.range_between(after, until)

    def some(self, ticks: FireRange) -> Iterator[datetime]:
        """The first MOST_TICKS nominal times of a run."""
        nominal: datetime | None = ticks.first
        for _ in range(MOST_TICKS):
            if nominal is None or nominal > ticks.last:
                return
            yield nominal
            nominal = self.next_after(nominal)


class _Book:
    """The rows of one step, in the order in which they are decided."""

    def __init__(self, look: Look) -> None:
        self._look = look
        self.ticks: list[Tick] = []
        self.resolved: list[Tick] = []
        self.extended: Tick | None = None
        self.skipping_since = look.schedule.skipping_since

    def each(self, nominal: datetime, outcome: TickOutcome) -> None:
        """One tick, fired or buffered."""
        self._add(FireRange(nominal, nominal, 1), outcome, None)

    def run(self, ticks: FireRange, outcome: TickOutcome, reason: str) -> None:
        """A run of ticks that share a fate."""
        self._add(ticks, outcome, reason)

    def skip_for_live_job(self, ticks: FireRange, reason: str) -> None:
        """A run that was skipped for a live job; it extends the last row if that is such a run."""
        if self.skipping_since is not None and not self.ticks:
            self.extended = self._tick(
                FireRange(self.skipping_since, ticks.last, ticks.count),
                TickOutcome.SKIPPED,
                reason,
            )
            return
        self._add(ticks, TickOutcome.SKIPPED, reason)
        self.skipping_since = ticks.first

    def resolve(self, waiting: Tick, outcome: TickOutcome, reason: str | None = None) -> None:
        """A tick that waited does so no longer."""
        self.resolved.append(
            msgspec.structs.replace(waiting, outcome=outcome, reason=reason, at=self._look.now)
        )

    def step(
        self,
        accounted_until: datetime,
        next_at: datetime | None,
        due_at: datetime | None,
        awaits_end: bool,
        cancels: str | None = None,
    ) -> Step:
        """The step that writes these rows."""
        return Step(
            schedule_id=self._look.schedule.id,
            revision=self._look.schedule.revision,
            accounted_until=accounted_until,
            next_at=next_at,
            due_at=due_at,
            awaits_end=awaits_end,
            skipping_since=self.skipping_since,
            ticks=tuple(self.ticks),
            resolved=tuple(self.resolved),
            extended=self.extended,
            cancels=cancels,
        )

    def _add(self, ticks: FireRange, outcome: TickOutcome, reason: str | None) -> None:
        self.ticks.append(self._tick(ticks, outcome, reason))
        self.skipping_since = None

    def _tick(self, ticks: FireRange, outcome: TickOutcome, reason: str | None) -> Tick:
        return Tick(
            schedule_id=self._look.schedule.id,
            nominal=ticks.first,
            outcome=outcome,
            reason=reason,
            until=None if ticks.count == 1 and ticks.last == ticks.first else ticks.last,
            count=ticks.count,
            at=self._look.now,
        )


def _by_rule(look: Look, everything: bool) -> Step:
    schedule, now = look.schedule, look.now
    definition = schedule.definition
    recurrence = recurrence_of(definition.recurrence)
    fires = _Fires(recurrence)
    book = _Book(look)
    until = now if everything else _due_until(schedule, recurrence, now)
    come = fires.between(schedule.accounted_until, until)
    wanted = None if come is None else _catch_up(book, look, fires, come)
    accounted_until = schedule.accounted_until if come is None else come.last
    busy, waiting, cancels = look.live, list(look.buffered), None
    if definition.overlap is Overlap.CANCEL_OTHER and wanted is not None:
        waiting, cancels = _supersede(book, look, fires, wanted)
    else:
        while waiting and (not busy or definition.overlap is Overlap.ALLOW):
            book.resolve(waiting.pop(0), TickOutcome.FIRED)
            busy = True
        if wanted is not None:
            accounted_until = _overlap(book, definition.overlap, fires, wanted, busy, waiting)
    next_at = fires.next_after(accounted_until)
    due_at = due_time(schedule, next_at, now)
    cut_short = wanted is not None and accounted_until < wanted.last
    released_all = not waiting and len(look.buffered) == MOST_BUFFERED_SHOWN
    if cut_short or released_all:
        due_at = now
    elif due_at is None and waiting:
        due_at = now + LONGEST_REST
    return book.step(accounted_until, next_at, due_at, bool(waiting), cancels)


def _due_until(schedule: ScheduleRecord, recurrence: Recurrence, now: datetime) -> datetime:
    """Up to which nominal time every tick is due: now, or less within the window of the jitter."""
    if not recurrence.jitter_seconds:
        return now
    surely = now - timedelta(seconds=recurrence.jitter_seconds)
    position = max(surely, schedule.accounted_until)
    for _ in range(_MOST_JITTERED):
        nominal = recurrence.next_after(position)
        if nominal is None or nominal > now or recurrence.due_at(schedule.id, nominal) > now:
            break
        position = nominal
    return position


def _catch_up(book: _Book, look: Look, fires: _Fires, come: FireRange) -> FireRange | None:
    """Which of the ticks that have come are owed; what became of the others is booked."""
    definition, position = look.schedule.definition, look.schedule.accounted_until
    if definition.catch_up is CatchUp.LATEST:
        earlier = None if come.count == 1 else fires.between(position, come.last - _SECOND)
        if earlier is not None:
            reason = f"coalesced into the tick of {come.last.isoformat()}"
            book.run(earlier, TickOutcome.COALESCED, reason)
        return FireRange(come.last, come.last, 1)
    if definition.catch_up is CatchUp.ALL:
        window = timedelta(seconds=definition.catch_up_window)
        reason = f"older than the catch-up window of {window}"
    else:
        window = GRACE
        reason = f"more than {GRACE.seconds} seconds late and not to be caught up"
    # Within its jitter a tick is not late.
    too_old = look.now - window - fires.jitter - _MICROSECOND
    if come.first > too_old:
        return come
    dropped = fires.between(position, min(too_old, come.last))
    if dropped is not None:
        book.run(dropped, TickOutcome.SKIPPED, reason)
        position = dropped.last
    return fires.between(position, come.last)


def _overlap(
    book: _Book,
    overlap: Overlap,
    fires: _Fires,
    wanted: FireRange,
    busy: bool,
    waiting: list[Tick],
) -> datetime:
    """Book the owed ticks; answers the last that was booked, which may not be the last owed."""
    if overlap in (Overlap.ALLOW, Overlap.BUFFER_ALL):
        nominal = wanted.first
        for nominal in fires.some(wanted):
            if overlap is Overlap.BUFFER_ALL and busy:
                book.each(nominal, TickOutcome.BUFFERED)
                waiting.append(book.ticks[-1])
            else:
                book.each(nominal, TickOutcome.FIRED)
                busy = True
        return nominal
    rest: FireRange | None = wanted
    if not busy:
        book.each(wanted.first, TickOutcome.FIRED)
        rest = fires.between(wanted.first, wanted.last)
    if overlap is Overlap.BUFFER_ONE and rest is not None and not waiting:
        book.each(rest.first, TickOutcome.BUFFERED)
        waiting.append(book.ticks[-1])
        rest = fires.between(rest.first, rest.last)
    if rest is not None:
        book.skip_for_live_job(rest, ONE_WAITS if overlap is Overlap.BUFFER_ONE else LIVE)
    return wanted.last


def _supersede(
    book: _Book, look: Look, fires: _Fires, wanted: FireRange
) -> tuple[list[Tick], str | None]:
    """Only the last owed tick counts: earlier ones are skipped, live jobs are cancelled.

    Answers the ticks that still wait, and the reason to cancel live jobs if there are any. What a
    person asked for (a backfill) goes on waiting.
    """
    reason = f"superseded by the tick of {wanted.last.isoformat()}"
    if wanted.count > 1:
        earlier = fires.between(wanted.first - _SECOND, wanted.last - _SECOND)
        if earlier is not None:
            book.run(earlier, TickOutcome.SKIPPED, reason)
    for tick in look.buffered:
        if tick.kind is TickKind.TICK:
            book.resolve(tick, TickOutcome.SKIPPED, reason)
    waiting = [tick for tick in look.buffered if tick.kind is not TickKind.TICK]
    if look.live:
        book.each(wanted.last, TickOutcome.BUFFERED)
        return [book.ticks[-1], *waiting], reason
    book.each(wanted.last, TickOutcome.FIRED)
    return waiting, None


def _while_paused(look: Look) -> Step:
    """Everything up to now is one skipped run."""
    schedule = look.schedule
    book = _Book(look)
    reason = PAUSED if schedule.note is None else f"{PAUSED}: {schedule.note}"
    if schedule.definition.after_finish is not None:
        if schedule.next_at is not None and schedule.next_at <= look.now:
            missed = FireRange(schedule.next_at, schedule.next_at, 1)
            book.run(missed, TickOutcome.SKIPPED, reason)
        return book.step(look.now, None, None, schedule.awaits_end)
    recurrence = recurrence_of(schedule.definition.recurrence)
    missed_run = recurrence.range_between(schedule.accounted_until, look.now)
    accounted_until = schedule.accounted_until
    if missed_run is not None:
        book.run(missed_run, TickOutcome.SKIPPED, reason)
        accounted_until = missed_run.last
    next_at = recurrence.next_after(accounted_until)
    due_at = due_time(schedule, next_at, look.now)
    return book.step(accounted_until, next_at, due_at, bool(look.buffered))


def _fixed_delay(look: Look) -> Step:
    """A tick follows the end of the last job; until then there is none."""
    schedule, now = look.schedule, look.now
    book = _Book(look)
    if look.live:
        return book.step(schedule.accounted_until, None, now + LONGEST_REST, True)
    if look.buffered:
        # Left over from an earlier definition.
        book.resolve(look.buffered[0], TickOutcome.FIRED)
        return book.step(schedule.accounted_until, None, now + LONGEST_REST, True)
    nominal = next_after_finish(schedule, now)
    due_at = due_time(schedule, nominal, now)
    if nominal is None or due_at is None or due_at > now:
        return book.step(schedule.accounted_until, nominal, due_at, False)
    book.each(nominal, TickOutcome.FIRED)
    return book.step(nominal, None, now + LONGEST_REST, True)


def next_after_finish(schedule: ScheduleRecord, now: datetime) -> datetime | None:
    """The next nominal time of a fixed delay with no live job: at once if it never ran."""
    recurrence = recurrence_of(schedule.definition.recurrence)
    delay = timedelta(seconds=schedule.definition.after_finish or 0)
    finished = schedule.last_finished_at
    known = [
        moment
        for moment in (schedule.next_at, None if finished is None else finished + delay)
        if moment is not None
    ]
    nominal = max(known, default=now)
    if recurrence.start is not None:
        nominal = max(nominal, recurrence.start)
    if recurrence.end is not None and nominal > recurrence.end:
        return None
    return nominal
