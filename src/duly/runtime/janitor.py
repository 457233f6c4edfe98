"""Housekeeping by any node, in small batches: expiry, retention, partitions."""

from __future__ import annotations

import asyncio
import logging
import random
from datetime import datetime, timedelta

from duly.policy.retention import RetentionPolicy, purges
from duly.store.protocol import Store

PERIOD = 30.0
BATCH = 1_000
FLOWS_AT_ONCE = 10
MOST_BATCHES = 50
TEND_EVERY = 60
TICKS_KEPT = timedelta(days=90)
EVENTS_KEPT = timedelta(days=30)

logger = logging.getLogger("duly.janitor")


class Janitor:
    """Cancels jobs that expired while no worker came for them, and forgets old finished ones, old
    flows, what became of old ticks, old events, and the steps and the journal of forgotten jobs.

    Several nodes may do so at once; each takes small bites, and none has to do it.
    """

    def __init__(self, store: Store, retention: RetentionPolicy) -> None:
        self._store = store
        self._retention = retention
        self._rounds = random.randrange(TEND_EVERY)

    async def tick(self) -> float:
        """One round; see Loop."""
        store = self._store
        now = await store.arun(store.clock())
        await store.arun(store.expire(BATCH))
        await store.arun(store.free_keys(BATCH))
        await store.arun(store.purge_ticks(now - TICKS_KEPT, BATCH))
        await store.arun(store.purge_events(now - EVENTS_KEPT, BATCH))
        await store.arun(store.start_queued_flows())
        oldest = now - self._retention.longest_archived()
        await store.arun(store.purge_flows(oldest, FLOWS_AT_ONCE))
        await store.arun(store.purge_steps(oldest, BATCH))
        await store.arun(store.purge_journal(oldest, BATCH))
        await self._purge(now)
        if self._rounds % TEND_EVERY == 0:
            for name in await asyncio.to_thread(store.tend, oldest):
                logger.info("partition %s", name)
        self._rounds += 1
        return PERIOD * random.uniform(0.8, 1.2)

    async def _purge(self, now: datetime) -> None:
        store = self._store
        queues = []
        if self._retention.queues:
            queues = [queue.name for queue in await store.arun(store.queues())]
        for purge in purges(self._retention, queues, now, store.drops_whole_days):
            for _ in range(MOST_BATCHES):
                gone = await store.arun(store.purge(purge.state, purge.before, BATCH, purge.queue))
                if purge.most is not None:
                    gone += await store.arun(
                        store.purge_surplus(purge.state, purge.most, BATCH, purge.queue)
                    )
                if gone < BATCH:
                    break
