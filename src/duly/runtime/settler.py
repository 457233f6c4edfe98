"""Writing outcomes to the store: those that wait together are written together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from duly.errors import SchemaBehind, StoreFull, StoreUnavailable
from duly.model.attempt import Failure
from duly.model.settlement import Settlement, bury
from duly.runtime.lease import LeaseClock
from duly.runtime.text import storable
from duly.store.protocol import Store

BATCH = 500
PAUSE = 0.2
TRIES = 5
REASON_REFUSED = "its outcome cannot be stored"

logger = logging.getLogger("duly.worker")


class Settler:
    """Takes settlements and writes them, in batches, for as long as the lease holds."""

    def __init__(
        self,
        store: Store,
        lease: LeaseClock,
        written: Callable[[list[Settlement], list[bool]], None],
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
        if not self._pending:
            self._emptied.clear()
            self._filled.set()
        self._pending.append(settlement)

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
        tries = 0
        told = False
        while True:
            try:
                landed = await self._store.arun(self._store.settle(batch))
            except (StoreUnavailable, StoreFull, SchemaBehind) as error:
                if not told:
                    logger.warning("%d outcomes wait: %s; trying again", len(batch), error)
                    told = True
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
            except Exception as error:
                tries += 1
                if tries < TRIES:
                    await asyncio.sleep(PAUSE)
                    continue
                await self._write_apart(batch, error)
                return
            break
        del self._pending[: len(batch)]
        if not all(landed):
            _report_refused(batch, landed)
        self._written(batch, landed)

    async def _write_apart(self, batch: list[Settlement], error: Exception) -> None:
        """The store refuses a batch: an outcome that is to blame must not hold up the others.

        Such a job is dead instead; it would come to the same outcome again.
        """
        if len(batch) > 1:
            for each in batch:
                await self._write([each])
            return
        refused = batch[0]
        if refused.reason == REASON_REFUSED:
            logger.error("the end of job %s cannot be stored: %s", refused.job_id, error)
            del self._pending[:1]
            return
        failure = Failure(type(error).__name__, storable(str(error)))
        self._pending[0] = bury(
            refused.job_id, refused.token, REASON_REFUSED, failure, parent_id=refused.parent_id
        )
        await self._write(self._pending[:1])


def _report_refused(batch: list[Settlement], landed: list[bool]) -> None:
    for settlement, accepted in zip(batch, landed, strict=True):
        if not accepted:
            logger.warning(
                "refused: the outcome %s of job %s under token %d is stale; another attempt has "
                "taken its place",
                settlement.outcome.value,
                settlement.job_id,
                settlement.token,
            )
