"""Keeping the stored schedules what the running code declares."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from duly.errors import ScheduleConflict
from duly.model.schedule import Declaration
from duly.policy.reconciling import REMOVAL_GRACE, reconcile
from duly.registry.schedules import DeclaredSchedules
from duly.runtime.chance import chance
from duly.store.changing import enforce
from duly.store.conversation import converse_async
from duly.store.protocol import Store

PERIOD = 20.0
SEEN_ENOUGH = timedelta(seconds=15)

logger = logging.getLogger("duly.scheduler")


class Reconciler:
    """Says now and then what this node's code declares, and puts in force what holds then.

    Any node does so for its whole application; see duly.policy.reconciling.
    """

    def __init__(
        self,
        store: Store,
        declared: DeclaredSchedules,
        now: Callable[[], datetime] | None = None,
    ) -> None:
        self._store = store
        self._declared = declared
        self._now = now
        self._warned: set[str] = set()

    async def tick(self) -> float:
        """One round; see Loop."""
        store, now = self._store, None if self._now is None else self._now()
        application = self._declared.application
        if self._declared:
            definitions = self._declared.definitions()
            await store.arun(store.declare(application, definitions, SEEN_ENOUGH, now))
        declarations = await store.arun(store.declarations())
        if declarations:
            instant = await store.arun(store.clock(now))
            plan = reconcile(declarations, application, instant)
            for declaration in plan.enforce:
                await self._enforce(declaration, now)
            for schedule_id in plan.remove:
                await self._remove(schedule_id, now)
            await store.arun(store.forget_declarations(application, instant - REMOVAL_GRACE))
            self._warn_of(plan.taken)
        return PERIOD * chance.uniform(0.9, 1.1)

    async def _enforce(self, declaration: Declaration, now: datetime | None) -> None:
        try:
            await converse_async(enforce(self._store, declaration, now), self._store.arun)
        except ScheduleConflict as conflict:
            logger.warning("%s", conflict)
        else:
            logger.info("schedule %s is in force as declared", declaration.schedule_id)

    async def _remove(self, schedule_id: str, now: datetime | None) -> None:
        (look,) = await self._store.arun(self._store.look([schedule_id], now))
        if look is not None:
            await self._store.arun(
                self._store.remove_schedule(schedule_id, look.schedule.revision, now)
            )
            logger.info("schedule %s is removed: nobody declares it any more", schedule_id)

    def _warn_of(self, taken: Mapping[str, str | None]) -> None:
        for schedule_id in taken.keys() & set(self._declared) - self._warned:
            owner = taken[schedule_id]
            whose = (
                "one of this name was made at run time"
                if owner is None
                else f"the application {owner!r} declares one of this name"
            )
            logger.warning(
                "schedule %s is declared in code, but %s and keeps it: remove that, or rename "
                "one of them",
                schedule_id,
                whose,
            )
            self._warned.add(schedule_id)
