"""Dead jobs: list, group by fault, replay, purge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from duly.model.job import JobRecord, State
from duly.model.query import JobFilter, Replay
from duly.service.jobs import Page, scan
from duly.store.protocol import Store

BATCH = 200

Progress = Callable[[int], None]
"""Called after each batch with the number of jobs done so far."""


class DeadFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which dead jobs are meant; every condition given must hold.

    `died_from` and `died_before` are about when they died, not when they were submitted.
    """

    queue: str | None = None
    task: str | None = None
    fingerprint: str | None = None
    died_from: datetime | None = None
    died_before: datetime | None = None


class DeadGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Dead jobs of one task that died of the same fault, the one that died last as example."""

    fingerprint: str | None
    task: str
    jobs: int
    first_died_at: datetime
    last_died_at: datetime
    example: JobRecord


class DeadJobs:
    """The use cases about the dead jobs of one store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def page(self, chosen: DeadFilter, limit: int = 50, before: UUID | None = None) -> Page:
        """Dead jobs that match, newest id first, below the cursor `before`."""
        found: list[JobRecord] = []
        for job in self._scan(chosen, before):
            if len(found) == limit:
                return Page(found, found[-1].id)
            found.append(job)
        return Page(found, None)

    def groups(self, chosen: DeadFilter) -> list[DeadGroup]:
        """Dead jobs that match by task and fault, the largest group first."""
        groups: dict[tuple[str, str | None], DeadGroup] = {}
        for job in self._scan(chosen):
            fingerprint = None if job.error is None else job.error.fingerprint
            died = _died_at(job)
            known = groups.get((job.task, fingerprint))
            if known is None:
                groups[job.task, fingerprint] = DeadGroup(
                    fingerprint=fingerprint,
                    task=job.task,
                    jobs=1,
                    first_died_at=died,
                    last_died_at=died,
                    example=job,
                )
                continue
            groups[job.task, fingerprint] = DeadGroup(
                fingerprint=fingerprint,
                task=job.task,
                jobs=known.jobs + 1,
                first_died_at=min(known.first_died_at, died),
                last_died_at=max(known.last_died_at, died),
                example=job if died > known.last_died_at else known.example,
            )
        return sorted(groups.values(), key=lambda group: (-group.jobs, group.task))

    def choose(self, chosen: DeadFilter) -> list[UUID]:
        """The ids of all dead jobs that match, the one submitted first in front."""
        return [job.id for job in self._scan(chosen)][::-1]

    def replay(
        self,
        job_ids: Sequence[UUID],
        progress: Progress = lambda done: None,
        keep_steps: bool = True,
    ) -> Mapping[Replay, int]:
        """Run dead jobs again, in batches; answers how many came to what."""
        answers: Counter[Replay] = Counter()
        for batch in _batches(job_ids):
            answers.update(self._store.run(self._store.replay(batch, keep_steps=keep_steps)))
            progress(answers.total())
        return answers

    def replay_edited(self, job_id: UUID, arguments: str, keep_steps: bool = True) -> Replay:
        """Run a dead job again with other arguments, encoded and checked."""
        (answer,) = self._store.run(self._store.replay([job_id], arguments, keep_steps=keep_steps))
        return answer

    def purge(self, job_ids: Sequence[UUID], progress: Progress = lambda done: None) -> int:
        """Delete dead jobs and their attempts for good, in batches; answers how many were dead
        still."""
        purged = seen = 0
        for batch in _batches(job_ids):
            purged += self._store.run(self._store.discard(batch))
            seen += len(batch)
            progress(seen)
        return purged

    def _scan(self, chosen: DeadFilter, before: UUID | None = None) -> Iterator[JobRecord]:
        criteria = JobFilter(
            states=frozenset({State.DEAD}),
            queue=chosen.queue,
            task=chosen.task,
            fingerprint=chosen.fingerprint,
            finished_from=chosen.died_from,
            finished_before=chosen.died_before,
        )
        return scan(self._store, criteria, before)


def _died_at(job: JobRecord) -> datetime:
    return job.finished_at or job.created_at


def _batches(job_ids: Sequence[UUID]) -> Iterator[Sequence[UUID]]:
    for start in range(0, len(job_ids), BATCH):
        yield job_ids[start : start + BATCH]
