"""Writing outcomes to the store: those that wait together are written together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from duly.errors import StoreUnavailable
from duly.model.settlement import Settlement
from duly.runtime.lease import LeaseClock
from duly.store.protocol import Store

BATCH = 500
PAUSE = 0.2

logger = logging.getLogger("duly.worker")


class Settler:
    """Takes settlements and writes them, in batches, for as long as the lease holds."""

    def __init__(
        self, store: Store, lease: LeaseClock, written: Callable[[Settlement, bool], None]
    ) -> None:
        self._store = store
        self._lease = lease
        self._written = written
        self._pending: list[Settlement] = []
        self._filled = asyncio.Event()
        self._emptied = asyncio.Event()
        self._emptied.set()

    def put(self, settlement: Settlement) -> None:
        """Have this written soon."""
        self._pending.append(settlement)
        self._emptied.clear()
        self._filled.set()

    @property
    def backlog(self) -> int:
        """How many are not written yet."""
        return len(self._pending)

    @property
    def waiting(self) -> list[Settlement]:
        """Those that are not written yet."""
        return list(self._pending)

    async def flushed(self) -> None:
        """Wait until everything is written or given up."""
        await self._emptied.wait()

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await self._filled.wait()
            batch = self._pending[:BATCH]
            if not batch:
                self._filled.clear()
                self._emptied.set()
                continue
            await self._write(batch)

    async def _write(self, batch: list[Settlement]) -> None:
        while True:
            try:
                landed = await self._store.arun(self._store.settle(batch))
            except StoreUnavailable as error:
                if self._lease.remaining() <= 0:
                    logger.error(
                        "%d outcomes could not be reported before the lease ended: %s",
                        len(batch),
                        error,
                    )
                    del self._pending[: len(batch)]
                    return
                await asyncio.sleep(PAUSE)
                continue
            break
        del self._pending[: len(batch)]
        for settlement, accepted in zip(batch, landed, strict=True):
            if not accepted:
                logger.warning(
                    "refused: the outcome %s of job %s under token %d is stale; another attempt "
                    "has taken its place",
                    settlement.outcome.value,
                    settlement.job_id,
                    settlement.token,
                )
            self._written(settlement, accepted)
