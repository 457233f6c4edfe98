"""The store of a simulation: in memory, on its clock, and gone for a worker that has died."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, TypeVar, cast

from duly.model.settlement import Settlement
from duly.store.clocked import ClockedStore
from duly.store.operation import Operation
from duly.store.protocol import Store
from duly.store.sqlite.inline import InlineSqliteStore
from duly.testing.simulation.clock import VirtualClock
from duly.testing.simulation.crashing import SimulatedCrash, Witness

T = TypeVar("T")


class SimulatedStore(ClockedStore):
    """An empty store. `witness`, if there is one, sees outcomes being stored."""

    def __init__(self, clock: VirtualClock, witness: Witness | None = None) -> None:
        self.inline = InlineSqliteStore()
        super().__init__(cast(Store, self.inline), clock)
        self.dead = False
        """Whether the one worker of the simulation has died: nothing of it may write any more."""
        self._witness = witness
        self._settling: tuple[object, str] | None = None

    def run(self, operation: Operation[T]) -> T:
        """See Store.run."""
        self._refuse_the_dead()
        result = self.inline.run(operation)
        self._settled(operation)
        return result

    async def arun(self, operation: Operation[T]) -> T:
        """See Store.arun."""
        self._refuse_the_dead()
        result = await self.inline.arun(operation)
        self._settled(operation)
        return result

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """See Store.transaction."""
        self._refuse_the_dead()
        with self.inline.transaction() as connection:
            yield connection
            self._refuse_the_dead()

    def die(self) -> None:
        """Answer the worker no more."""
        self.dead = True

    def settle(
        self, settlements: Sequence[Settlement], now: datetime | None = None
    ) -> Operation[list[bool]]:
        """See Verbs.settle."""
        operation = self.inline.settle(settlements, now or self._clock.now())
        if self._witness is not None and settlements:
            self._settling = (operation, self._witness.settles(settlements))
        return operation

    def _settled(self, operation: object) -> None:
        settling = self._settling
        if self._witness is not None and settling is not None and settling[0] is operation:
            self._settling = None
            self._witness.point(f"after the outcome of {settling[1]} was stored")

    def _refuse_the_dead(self) -> None:
        if self.dead:
            raise SimulatedCrash("the worker has died")
