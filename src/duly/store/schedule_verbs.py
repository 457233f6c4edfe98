"""The verbs about recurring work; part of the contract in `protocol`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from duly.model.schedule import Declaration, Definition, Look, ScheduleRecord, Step, Tick
from duly.store.operation import Operation


class ScheduleVerbs(Protocol):
    """What can be done to schedules, and asked about them.

    When a job that names a schedule reaches a final state, by whatever verb, the same transaction
    tells the schedule: `last_finished_at`; `failures_in_a_row` (0 after a success, one more after
    a death, the same after a cancellation); `last_success_for` and `last_result` after the success
    of an equal or later nominal time (a result over LONGEST_RESULT_KEPT is left out); due now if
    it `awaits_end`; paused, with a note, when `pause_after_failures` is reached. Its revision
    grows.
    """

    def clock(self, now: datetime | None = None) -> Operation[datetime]:
        """What time it is for the store."""
        ...

    def add_schedules(self, schedules: Sequence[ScheduleRecord]) -> Operation[list[bool]]:
        """Store schedules under names that are free; answers in order which were."""
        ...

    def change_schedule(
        self, schedule: ScheduleRecord, step: Step, now: datetime | None = None
    ) -> Operation[bool]:
        """Replace a schedule and write the rows and jobs of the step, in one transaction; only if
        its revision is still the given one. Answers whether it was."""
        ...

    def remove_schedule(
        self, schedule_id: str, revision: int, now: datetime | None = None
    ) -> Operation[bool]:
        """Delete a schedule and its declarations if its revision is still the given one; answers
        whether it was. Its ticks stay until they are purged, buffered ones as skipped; its jobs
        go on."""
        ...

    def fire(self, steps: Sequence[Step], now: datetime | None = None) -> Operation[list[bool]]:
        """Take steps of schedules, at most one of each, all in one transaction.

        For each, only if the schedule's revision is still the given one: advance it, write its
        ticks, cancel its live jobs if asked to, and store the jobs of its fired ticks. Answers in
        order which have landed. A tick whose row exists already is not written again, and its job
        is not stored. A step that somebody else is changing at the moment does not land.
        """
        ...

    def look(
        self, schedule_ids: Sequence[str], now: datetime | None = None
    ) -> Operation[list[Look | None]]:
        """The schedules in order, with what their next steps depend on; None for no such one."""
        ...

    def due_schedules(self, limit: int, now: datetime | None = None) -> Operation[list[Look]]:
        """Up to `limit` schedules that are not paused and due, the longest due first."""
        ...

    def next_schedule_due(self, now: datetime | None = None) -> Operation[float | None]:
        """Seconds until the first schedule that is not paused is due (0: now), None without."""
        ...

    def schedules(self, limit: int, after: str | None = None) -> Operation[list[ScheduleRecord]]:
        """Schedules by id, in the order of bytes, after the cursor `after`."""
        ...

    def ticks(
        self, schedule_id: str, limit: int, before: Tick | None = None
    ) -> Operation[list[Tick]]:
        """What became of a schedule's ticks, latest nominal time first, below `before`."""
        ...

    def latest_ticks(self, schedule_ids: Sequence[str]) -> Operation[list[Tick]]:
        """What became of the latest nominal time of each of the schedules that have any."""
        ...

    def fired_ticks(
        self, schedule_id: str, first: datetime, last: datetime
    ) -> Operation[list[datetime]]:
        """The nominal times from `first` to `last` for which a job was made or a tick waits."""
        ...

    def purge_ticks(self, before: datetime, limit: int) -> Operation[int]:
        """Forget up to `limit` ticks written before that, none that waits; answers how many."""
        ...

    def declare(
        self,
        application: str,
        definitions: Mapping[str, Definition],
        unless_seen: timedelta = timedelta(0),
        now: datetime | None = None,
    ) -> Operation[None]:
        """Say that running code of an application declares these schedules. One that was seen no
        longer than `unless_seen` ago is not written again."""
        ...

    def declarations(self) -> Operation[list[Declaration]]:
        """Every declaration of every application, with what holds for its schedule."""
        ...

    def forget_declarations(self, application: str, before: datetime) -> Operation[int]:
        """Forget what an application declared and was last seen before that; answers how many."""
        ...
