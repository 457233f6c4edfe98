"""Calling a task's hooks after an outcome is stored."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Sequence
from uuid import UUID

from duly.errors import StoreError
from duly.model.attempt import Outcome
from duly.model.job import JobRecord, State
from duly.model.query import Reaped
from duly.model.settlement import Settlement
from duly.registry.task import Registry, TaskDefinition
from duly.runtime.chores import Chores
from duly.store.protocol import Store

logger = logging.getLogger("duly.worker")


class Hooks:
    """Calls what the tasks of one worker want called, once an outcome of theirs has landed."""

    def __init__(self, store: Store, chores: Chores) -> None:
        self._store = store
        self._chores = chores
        self._awaited: dict[tuple[UUID, int], TaskDefinition] = {}

    def expect(self, job: JobRecord, definition: TaskDefinition) -> None:
        """An outcome of this job is about to be written."""
        self._awaited[job.id, job.token] = definition

    def written(self, batch: Sequence[Settlement], landed: Sequence[bool]) -> None:
        """These outcomes have been written, or refused."""
        if not self._awaited:
            return
        for settled, accepted in zip(batch, landed, strict=True):
            definition = self._awaited.pop((settled.job_id, settled.token), None)
            if definition is not None and accepted:
                self._chores.begin(self._call(definition, settled))

    async def _call(self, definition: TaskDefinition, settled: Settlement) -> None:
        failed = settled.outcome in (Outcome.FAILED, Outcome.TIMED_OUT, Outcome.CRASHED)
        await _call(self._store, definition, settled.job_id, settled.state, failed)


async def call_hooks_of_reaped(store: Store, registry: Registry, reaped: Sequence[Reaped]) -> None:
    """Call what tasks want called for jobs that were taken back from a dead worker."""
    dead = [each.job_id for each in reaped if each.state is State.DEAD]
    if not dead or not any(definition.hooks.any for definition in registry):
        return
    for record in await store.arun(store.get(dead)):
        definition = None if record is None else registry.get(record.task)
        if record is not None and definition is not None:
            await _call(store, definition, record.id, State.DEAD, failed=True)


async def _call(
    store: Store, definition: TaskDefinition, job_id: UUID, state: State, failed: bool
) -> None:
    """Call the hooks; what one raises is logged and goes no further."""
    hooks = definition.hooks
    wanted = [
        hooks.on_success if state is State.SUCCEEDED else None,
        hooks.on_failure if failed else None,
        hooks.on_dead if state is State.DEAD else None,
    ]
    calls = [hook for hook in wanted if hook is not None]
    if not calls:
        return
    try:
        (record,) = await store.arun(store.get([job_id]))
    except StoreError as error:
        logger.warning("hooks of job %s are not called: %s", job_id, error)
        return
    for hook in calls:
        try:
            if inspect.iscoroutinefunction(hook):
                await hook(record)
            else:
                await asyncio.to_thread(hook, record)
        except Exception:
            logger.exception("a hook of job %s failed", job_id)
