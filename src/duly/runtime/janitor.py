"""Housekeeping by any node, in small batches: expiry, retention, partitions."""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime, timedelta

from duly.policy.retention import RetentionPolicy, purges
from duly.runtime.chance import chance
from duly.store.protocol import Store

PERIOD = 60.0
SOON = 1.0
BATCH = 1_000
FLOWS_AT_ONCE = 10
MOST_BATCHES = 50
FORGET_EVERY = 5
TEND_EVERY = 30
TICKS_KEPT = timedelta(days=90)

logger = logging.getLogger("duly.janitor")


class Janitor:
    """Cancels jobs that expired while no worker came for them, and forgets old finished ones, old
    flows, what became of old ticks, old events, and the steps and the journal of forgotten jobs.

    Several nodes may do so at once; each takes small bites, and none has to do it.
    """

    def __init__(self, store: Store, retention: RetentionPolicy) -> None:
        self._store = store
        self._retention = retention
        self._rounds = 0
        self._tends_at = chance.randrange(TEND_EVERY)
        self._has_more = False

    async def tick(self) -> float:
        """One round; see Loop."""
        store = self._store
        await store.arun(store.expire(BATCH))
        await store.arun(store.start_queued_flows())
        if self._has_more or self._rounds % FORGET_EVERY == 0:
            self._has_more = await self._forget()
        if self._rounds % TEND_EVERY == self._tends_at:
            await self._tend()
        self._rounds += 1
        return (SOON if self._has_more else PERIOD) * chance.uniform(0.8, 1.2)

    async def _forget(self) -> bool:
        """Take a bite of what is old; answers whether there may be more."""
        store = self._store
        now = await store.arun(store.clock())
        oldest = now - self._retention.longest_archived()
        chores = [
            (store.free_keys(BATCH), BATCH),
            (store.purge_ticks(now - TICKS_KEPT, BATCH), BATCH),
            (store.purge_events(now - self._retention.events, BATCH), BATCH),
            (store.purge_flows(oldest, FLOWS_AT_ONCE), FLOWS_AT_ONCE),
            (store.purge_steps(oldest, BATCH), BATCH),
            (store.purge_journal(oldest, BATCH), BATCH),
        ]
        more = [await store.arun(chore) >= most for chore, most in chores]
        return await self._purge(now) or any(more)

    async def _purge(self, now: datetime) -> bool:
        store = self._store
        queues = []
        if self._retention.queues:
            queues = [queue.name for queue in await store.arun(store.queues())]
        more = False
        for purge in purges(self._retention, queues, now, store.drops_whole_days):
            for _ in range(MOST_BATCHES):
                gone = await store.arun(store.purge(purge.state, purge.before, BATCH, purge.queue))
                if purge.most is not None:
                    gone += await store.arun(
                        store.purge_surplus(purge.state, purge.most, BATCH, purge.queue)
                    )
                if gone < BATCH:
                    break
            else:
                more = True
        return more

    async def _tend(self) -> None:
        oldest = await self._store.arun(self._store.clock()) - self._retention.longest_archived()
        for name in await asyncio.to_thread(self._store.tend, oldest):
            logger.info("partition %s", name)
