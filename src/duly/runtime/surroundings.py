"""What a worker takes from the process around it; simulations bring their own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from duly.model.job import JobRecord
from duly.policy.verdict import Verdict
from duly.runtime.context import JobContext, Report
from duly.runtime.lease import LeaseClock
from duly.runtime.pace import Pace
from duly.runtime.slots import Slots
from duly.runtime.steps.port import Port
from duly.runtime.threads import Crew, Errand
from duly.runtime.watching import Watching
from duly.store.operation import Wake
from duly.store.protocol import Store


class Hands(Protocol):
    """Whoever makes the calls of blocking tasks."""

    def send(self, errand: Errand) -> None:
        """Have the errand done."""
        ...

    def replace_lost(self) -> None:
        """One that makes a call does not come back."""
        ...

    def close(self) -> None:
        """There are no more errands."""
        ...


class Watch(Protocol):
    """Somebody who passes on the store's signal that something changed."""

    @property
    def hears(self) -> bool:
        """Whether the signal works; without it, one has to ask now and then."""
        ...

    def ease(self) -> None:
        """Pass signals on now and then only: whoever gets them is at work. Where many processes
        write, their watches would take the processor from whoever holds the lock."""
        ...

    def attend(self) -> None:
        """Pass signals on at once."""
        ...

    def close(self) -> None:
        """Pass on no more."""
        ...


class Surroundings:
    """Those of a real process: threads, and nobody who looks on."""

    def hands(self, size: int) -> Hands:
        """For `size` blocking calls at a time."""
        return Crew(size)

    def pace(self, slots: Slots) -> Pace:
        """Of a worker with these slots."""
        return Pace(slots)

    def patience(self, lease: LeaseClock) -> Callable[[], float]:
        """For how many seconds more the steps of a worker with this lease wait for the store."""
        return lease.remaining

    def watch(
        self, store: Store, changed: Callable[[], None], wake: Wake, rest: float = 0.0
    ) -> Watch:
        """Call `changed` on this event loop after commits that matter to those `wake` names."""
        return Watching(store, asyncio.get_running_loop(), changed, wake, rest)

    def context(
        self, job: JobRecord, report: Report, port: Port, payload_limit: int, is_async: bool
    ) -> JobContext:
        """What the task's code learns of its job."""
        return JobContext(job, report, port, payload_limit, is_async)

    def ended(self, job: JobRecord, verdict: Verdict | None) -> None:
        """The code of an attempt has ended; without a verdict it has settled itself."""
