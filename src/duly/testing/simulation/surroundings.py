"""What a worker takes from the process around it, in a simulation: one thread, and a witness."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from duly.model.job import Delivery, JobRecord
from duly.policy.verdict import Verdict
from duly.registry.task import TaskDefinition
from duly.runtime.attempt import Transaction, run_async, run_blocking, run_transactional
from duly.runtime.context import JobContext, Report
from duly.runtime.isolation import Isolation
from duly.runtime.lease import LeaseClock
from duly.runtime.slot import Slot
from duly.runtime.steps.commands import Talk
from duly.runtime.steps.port import Port
from duly.runtime.surroundings import Hands, Surroundings, Watch
from duly.runtime.threads import Errand
from duly.store.operation import Wake
from duly.store.protocol import Store
from duly.store.sqlite.inline import InlineSqliteStore
from duly.testing.simulation.crashing import Witness
from duly.testing.simulation.loop import VirtualLoop

T = TypeVar("T")

Ended = Callable[[JobRecord, Verdict | None], None]


class SimulatedSurroundings(Surroundings):
    """Blocking tasks run in the loop's own thread, one at a time, and signals come at once."""

    def __init__(
        self, loop: VirtualLoop, store: InlineSqliteStore, ended: Ended, witness: Witness | None
    ) -> None:
        self._loop = loop
        self._store = store
        self._ended = ended
        self._witness = witness

    def hands(self, size: int) -> Hands:
        """See Surroundings.hands."""
        return _OneThread(self._loop)

    def patience(self, lease: LeaseClock) -> Callable[[], float]:
        """None: in one thread nothing would change meanwhile."""
        return lambda: 0.0

    def watch(
        self, store: Store, changed: Callable[[], None], wake: Wake, rest: float = 0.0
    ) -> Watch:
        """See Surroundings.watch."""

        def pass_on() -> None:
            if self.signal_arrives():
                changed()

        return _Signal(self._store, self._loop, pass_on, wake)

    def signal_arrives(self) -> bool:
        """Whether a signal that is on its way to this worker arrives."""
        return True

    def context(
        self, job: JobRecord, report: Report, port: Port, payload_limit: int, is_async: bool
    ) -> JobContext:
        """See Surroundings.context."""
        if self._witness is None:
            return super().context(job, report, port, payload_limit, is_async)
        self._witness.begins(job)
        context = _WitnessedContext(job, report, port, payload_limit, is_async)
        context.witness = self._witness
        return context

    def ended(self, job: JobRecord, verdict: Verdict | None) -> None:
        """See Surroundings.ended."""
        self._ended(job, verdict)
        if verdict is None and self._witness is not None:
            self._witness.committed(job)


class _OneThread:
    """Makes blocking calls where the loop runs; the loop stands still meanwhile."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def send(self, errand: Errand) -> None:
        self._loop.call_soon(self._perform, errand)

    def replace_lost(self) -> None:
        """None can be lost: what does not return holds up the whole simulation."""

    def close(self) -> None:
        """Nothing is held."""

    def _perform(self, errand: Errand) -> None:
        following: Errand | None = errand
        while following is not None:
            with self._loop.set_aside():
                following.perform()
            following = following.follower()


class _Signal:
    """Passes on the commits of the simulation's own store."""

    hears = True

    def __init__(
        self,
        store: InlineSqliteStore,
        loop: VirtualLoop,
        changed: Callable[[], None],
        wake: Wake,
    ) -> None:
        self._store = store
        self._loop = loop
        self._changed = changed
        self._wake = wake
        store.listeners.append(self._hear)

    def ease(self) -> None:
        """Nobody is disturbed here."""

    def attend(self) -> None:
        """It always does."""

    def close(self) -> None:
        if self._hear in self._store.listeners:
            self._store.listeners.remove(self._hear)

    def _hear(self, wakes: frozenset[Wake]) -> None:
        if self._wake in wakes:
            self._loop.call_soon_threadsafe(self._changed)


class _WitnessedContext(JobContext):
    witness: Witness

    def carry_out(self, talk: Talk[T]) -> Awaitable[T]:
        """See JobContext.carry_out."""
        return super().carry_out(self.witness.watch(self.job, talk))


class NoIsolation(Isolation):
    """Tasks that ask for a process of their own run in the simulation's."""

    def __init__(
        self, loop: VirtualLoop, store: Store, transaction: Transaction, payload_limit: int
    ) -> None:
        super().__init__(None, payload_limit)
        self._loop = loop
        self._store = store
        self._transaction = transaction
        self._limit = payload_limit

    def can_run(self, job: JobRecord, definition: TaskDefinition) -> bool:
        """Never: there are no other processes here."""
        return False

    async def run(self, slot: Slot) -> Verdict | None:
        """See Isolation.run."""
        job, definition, context = slot.job, slot.definition, slot.context
        slot.code_starts()
        if definition.is_async and job.delivery is not Delivery.TRANSACTIONAL:
            return await run_async(definition, job, context, self._limit)
        with self._loop.set_aside():
            if job.delivery is Delivery.TRANSACTIONAL:
                return run_transactional(
                    definition, job, context, self._limit, self._store, self._transaction
                )
            return run_blocking(definition, job, context, self._limit)
