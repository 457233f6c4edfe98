"""Storing the subscriptions that running code declares."""

from __future__ import annotations

from datetime import timedelta

from duly.registry.subscribing import DeclaredSubscriptions
from duly.store.protocol import Store

PERIOD = 600.0
SEEN_ENOUGH = timedelta(hours=1)
FORGET_AFTER = timedelta(days=7)
"""A subscription that no worker has declared for this long ends."""


class Subscriber:
    """Says at a worker's start, and now and then, what its code is subscribed to."""

    def __init__(self, store: Store, declared: DeclaredSubscriptions) -> None:
        self._store = store
        self._declared = declared

    async def declare(self) -> None:
        """Store the subscriptions that are new, changed, or not seen for a while."""
        if self._declared:
            await self._store.arun(self._store.subscribe(list(self._declared), SEEN_ENOUGH))

    async def tick(self) -> float:
        """One round; see Loop."""
        await self.declare()
        if self._declared:
            oldest = await self._store.arun(self._store.clock()) - FORGET_AFTER
            await self._store.arun(self._store.forget_subscriptions(oldest))
        return PERIOD
