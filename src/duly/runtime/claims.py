"""What a worker asks of the store: jobs, with all that their code will need."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec

from duly.errors import StoreError, StoreUnavailable
from duly.model.job import JobRecord
from duly.model.query import Demand, Due
from duly.model.settlement import release
from duly.model.step import Recorded
from duly.policy.flow_inputs import with_values
from duly.registry.task import Registry
from duly.runtime.executor import Executor
from duly.runtime.settings import WorkerSettings
from duly.runtime.settler import Settler
from duly.runtime.slots import Slots
from duly.store.protocol import Store

EXPIRED = 100


class Claims:
    """Claims in the name of one worker."""

    def __init__(
        self,
        worker_id: UUID,
        store: Store,
        registry: Registry,
        settings: WorkerSettings,
        executor: Executor,
        settler: Settler,
        slots: Slots,
    ) -> None:
        self._worker_id = worker_id
        self._store = store
        self._registry = registry
        self._settings = settings
        self._executor = executor
        self._settler = settler
        self._slots = slots
        self._tasks = registry.names
        self._credit = 0.0
        self._some_left = True
        """Whether jobs may be due that the last claim did not bring: they may have expired."""
        self.unknown = False
        """Whether the worker may hold jobs that it was not told of."""

    async def take(
        self, limit: int, due_by: datetime | None = None
    ) -> tuple[list[JobRecord], dict[UUID, Recorded]]:
        """Claim up to `limit` jobs; answers them, and what earlier attempts of them have recorded.

        With `due_by`, what is due by then is claimed, and must not start before its own time.
        Raises LeaseLost when the worker may claim nothing any more.
        """
        self._credit = min(limit, self._credit + limit * self._settings.fair_share)
        share = int(self._credit)
        demand = Demand(
            worker=self._worker_id,
            queues=self._settings.queues,
            tasks=self._tasks,
            limit=limit,
            longest_waiting=share,
            expiring=self._some_left,
            due_by=due_by,
        )
        try:
            jobs = await self._store.arun(self._store.claim(demand))
        except StoreUnavailable as error:
            self.unknown = self.unknown or error.unknown
            raise
        self._some_left = len(jobs) < limit
        if jobs:
            self._credit -= share
        of_flows = [job.id for job in jobs if job.flow_id is not None]
        stepped = [job.id for job in jobs if job.stepped and self._runs_here(job)]
        try:
            if of_flows:
                jobs = await self._with_inputs(jobs, of_flows)
            recorded = await self._recorded(stepped) if stepped else {}
        except StoreError:
            # They are claimed, and nobody is told.
            self.unknown = True
            raise
        return jobs, recorded

    async def next_due(self, exact: bool) -> Due | None:
        """When there will be something to claim; None when nothing is in sight."""
        due = await self._store.arun(
            self._store.next_due(self._settings.queues, self._tasks, exact=exact)
        )
        self._some_left = due is not None and due.seconds <= 0
        return due

    async def end_expired(self) -> None:
        """End what has expired in a flow: it is due and yet is not claimed."""
        await self._store.arun(self._store.expire(EXPIRED))

    async def give_back_unknown(self) -> None:
        """Release what was claimed without a word: after a claim whose commit is unknown, and
        after one that could not be made complete."""
        held = await self._store.arun(self._store.held(self._worker_id))
        written = {(each.job_id, each.token) for each in self._settler.waiting}
        known = written | self._slots.attempts
        for job_id, token in held:
            if (job_id, token) not in known:
                self._settler.put(release(job_id, token))
        self.unknown = False

    def _runs_here(self, job: JobRecord) -> bool:
        return not self._executor.runs_elsewhere(job, self._registry.require(job.task))

    async def _with_inputs(self, jobs: list[JobRecord], of_flows: list[UUID]) -> list[JobRecord]:
        """The jobs, with the results of others that those of flows have as arguments."""
        inputs = await self._store.arun(self._store.flow_inputs(of_flows))
        return [
            msgspec.structs.replace(job, arguments=with_values(job.arguments, inputs[job.id]))
            if job.id in inputs
            else job
            for job in jobs
        ]

    async def _recorded(self, stepped: list[UUID]) -> dict[UUID, Recorded]:
        found = await self._store.arun(self._store.steps_of(stepped))
        return dict(zip(stepped, found, strict=True))
