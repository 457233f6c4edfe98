"""Jobs under suspicion, as processes have died while they ran: they run apart from others."""

from __future__ import annotations

from duly.model.job import JobRecord
from duly.policy.verdict import is_worn_out
from duly.registry.task import Registry
from duly.runtime.executor import Executor
from duly.runtime.slot import Slot
from duly.runtime.slots import Slots
from duly.store.protocol import Store


class Suspicion:
    """Keeps those apart that no other process can run."""

    def __init__(self, store: Store, registry: Registry, executor: Executor, slots: Slots) -> None:
        self._store = store
        self._registry = registry
        self._executor = executor
        self._slots = slots
        self._seen = False

    @property
    def bars(self) -> bool:
        """Whether nothing may be claimed until those that run are done."""
        return self._seen and bool(self._slots)

    def startable(self, jobs: list[JobRecord], ahead: bool) -> list[JobRecord]:
        """Those of the claimed jobs that may start together.

        One under suspicion starts with nothing beside it; while others still run it does not start,
        and nothing is claimed until they are done. Nor does it if others were claimed with it
        `ahead` of their time: they may be due before it.
        """
        suspects = [
            job
            for job in jobs
            if job.alone and self._executor.needs_solitude(job, self._registry.require(job.task))
        ]
        self._seen = bool(suspects)
        if not suspects:
            return jobs
        others = [job for job in jobs if job not in suspects]
        return others if self._slots or (ahead and others) else suspects[:1]

    async def is_worn_out(self, slot: Slot) -> bool:
        """Whether the past of the job says that it has crashed often enough."""
        store, job = self._store, slot.job
        attempts = await store.arun(store.attempts(job.id))
        steps = (await store.arun(store.steps(job.id))).steps if job.stepped else []
        isolated = not self._executor.needs_solitude(job, slot.definition)
        return is_worn_out(job, attempts, steps, isolated)
