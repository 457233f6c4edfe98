"""Where the pending jobs of each lane begin, while claims would find out at great cost.

Jobs that are gone stay in the index until a vacuum, and as long as somebody leaves a transaction
open, no vacuum removes them: every claim walks over all that were pending since. Claims count what
they walk over. When that is much, the beginnings of all lanes are looked up beside them, and claims
start there.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from duly.model.job import JobRecord
from duly.store.operation import Operation, Statement, Steps
from duly.store.postgres.lanes import claimable_in
from duly.store.postgres.rows import CLOCK, NOW, InSchema, utc

# What the server has read from the index of lanes, by its own counters: entries, but those that it
# knows to be gone, and pages, with all of them; a page takes as long as some four entries. What
# matters is the difference from the beginning of a statement to its end.
READ = """coalesce(pg_stat_get_xact_tuples_returned(to_regclass('{schema}.jobs_lane'))
        + 4 * pg_stat_get_xact_blocks_fetched(to_regclass('{schema}.jobs_lane')), 0)"""

# What commits late, or comes back, is due before the mark, where no claim looks. For commits there
# is a moment's grace; what is left is found by the next survey.
LAG = timedelta(seconds=0.25)

SURVEY = f"""
WITH {CLOCK}, started AS MATERIALIZED (SELECT {READ} AS read),
lanes AS MATERIALIZED (
    SELECT DISTINCT queue, task, priority, {NOW} AS now, (SELECT read FROM started) AS read
    FROM {{schema}}.lanes
)
SELECT lanes.queue, lanes.task, lanes.priority, head.run_at, head.id, {READ} - lanes.read, lanes.now
FROM lanes LEFT JOIN LATERAL (
    SELECT run_at, id FROM {{schema}}.jobs WHERE {claimable_in("lanes", marked=False)}
    ORDER BY run_at, id LIMIT 1
) head ON true
"""

MANY = 2_000
"""What a claim may read beyond its jobs before it is worth while to know where to start."""
MANY_IN_CROWD = 50_000
"""The same where many claim: until a survey has told, they have moved on that far."""
FEW = 100
"""What may be read before the first pending job of a lane without a mark."""
PERIOD = 0.25
"""Seconds from one survey to the next, at least; and it takes one part of `SHARE` of the time."""
SHARE = 20
TRUSTED_FOR = 3
"""Periods after which marks are not used any more without another survey."""

FIRST_ID = UUID(int=0)

Lane = tuple[str, str, int]
Mark = tuple[datetime, UUID]


class Marks:
    """What one survey has found: each lane that is worth it, and what is pending in it first.

    Claims that started at these marks move them on; those of an earlier survey do not touch
    them: they would pass over what this one has found before the earlier marks.
    """

    def __init__(self, starts: dict[Lane, Mark], now: datetime, began: float, ended: float) -> None:
        self._starts = starts
        self._now = now
        self._ended = ended
        period = max(PERIOD, (ended - began) * SHARE)
        self._stale_at = began + period
        self._useless_at = began + period * TRUSTED_FOR

    @property
    def usable(self) -> bool:
        """Whether claims may start here."""
        return bool(self._starts) and time.monotonic() < self._useless_at

    @property
    def stale(self) -> bool:
        """Whether it is time for another survey."""
        return time.monotonic() >= self._stale_at

    @property
    def parameters(self) -> dict[str, list[Any]]:
        """For a marked statement."""
        queues, tasks, priorities = zip(*self._starts, strict=True)
        times, ids = zip(*self._starts.values(), strict=True)
        return {
            "marked_queues": list(queues),
            "marked_tasks": list(tasks),
            "marked_priorities": list(priorities),
            "marked_times": list(times),
            "marked_ids": list(ids),
        }

    def move_on(self, jobs: Iterable[JobRecord]) -> None:
        """These are the first of their lanes, in order."""
        latest = self._now + timedelta(seconds=time.monotonic() - self._ended) - LAG
        first: dict[Lane, Mark] = {}
        for job in jobs:
            first.setdefault((job.queue, job.task, job.priority), (job.run_at, job.id))
        for lane, mark in first.items():
            if lane in self._starts:
                self._starts[lane] = min(mark, (latest, FIRST_ID))


class Marking(InSchema):
    """Surveys the lanes, and keeps the marks."""

    def __init__(self, schema: str) -> None:
        super().__init__(schema)
        self._marks = _NONE
        self._walked_far = False

    @property
    def marks(self) -> Marks | None:
        """The marks to start at, if there are any."""
        return self._marks if self._marks.usable else None

    @property
    def survey_is_due(self) -> bool:
        """Whether somebody should run one."""
        return self._walked_far and self._marks.stale

    def survey(self) -> Operation[None]:
        """Find where the lanes begin."""
        return Operation(self._survey, writes=False, atomic=False)

    def _walked(self, read: int, jobs: int, crowded: bool) -> None:
        """A claim read so much for so many jobs."""
        bearable = MANY_IN_CROWD if crowded else MANY
        self._walked_far = self._marks.usable or read - 2 * jobs > bearable

    def _survey(self) -> Steps[None]:
        began = time.monotonic()
        rows = yield Statement(self.text(SURVEY), {"now": None})
        starts: dict[Lane, Mark] = {}
        before = 0
        for queue, task, priority, run_at, job_id, read, now in rows:
            if read - before > FEW:
                latest = (utc(now) - LAG, FIRST_ID)
                head = latest if run_at is None else (utc(run_at), job_id)
                starts[queue, task, priority] = min(head, latest)
            before = read
        self._walked_far = False
        self._marks = Marks(starts, utc(now), began, time.monotonic()) if rows else _NONE


_NONE = Marks({}, datetime.min.replace(tzinfo=UTC), -PERIOD, -PERIOD)
