"""Housekeeping by any node, in small batches: expiry and retention."""

from __future__ import annotations

import random

from duly.store.protocol import Store

PERIOD = 30.0
BATCH = 1_000


class Janitor:
    """Cancels jobs that have expired while no worker came for them."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def tick(self) -> float:
        """One round; see Loop."""
        expired = await self._store.arun(self._store.expire(BATCH))
        if expired == BATCH:
            return 0.0
        return PERIOD * random.uniform(0.8, 1.2)
