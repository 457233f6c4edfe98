"""Calling a task's hooks after an outcome is stored."""

from __future__ import annotations

import asyncio
import inspect
import logging

from duly.errors import StoreError
from duly.model.attempt import Outcome
from duly.model.job import State
from duly.model.settlement import Settlement
from duly.registry.task import TaskDefinition
from duly.store.protocol import Store

logger = logging.getLogger("duly.worker")


async def call_hooks(store: Store, definition: TaskDefinition, settled: Settlement) -> None:
    """Call what the task wants called; what a hook raises is logged and goes no further."""
    hooks = definition.hooks
    wanted = []
    if settled.state is State.SUCCEEDED:
        wanted.append(hooks.on_success)
    elif settled.outcome in (Outcome.FAILED, Outcome.TIMED_OUT, Outcome.CRASHED):
        wanted.append(hooks.on_failure)
    if settled.state is State.DEAD:
        wanted.append(hooks.on_dead)
    calls = [hook for hook in wanted if hook is not None]
    if not calls:
        return
    try:
        (record,) = await store.arun(store.get([settled.job_id]))
    except StoreError as error:
        logger.warning("hooks of job %s are not called: %s", settled.job_id, error)
        return
    for hook in calls:
        try:
            if inspect.iscoroutinefunction(hook):
                await hook(record)
            else:
                await asyncio.to_thread(hook, record)
        except Exception:
            logger.exception("a hook of job %s failed", settled.job_id)
