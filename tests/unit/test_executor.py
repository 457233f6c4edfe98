"""Which code runs: not that of jobs that were stopped before its thread came."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from duly.model.attempt import Outcome
from duly.model.job import Delivery
from duly.policy.verdict import Verdict
from duly.runtime import executor as executor_module
from duly.runtime.executor import Executor
from duly.runtime.slot import Slot
from duly.runtime.threads import Errand


class Queue:
    """Hands that take errands and do not do them yet."""

    def __init__(self) -> None:
        self.errands: list[Errand] = []

    def send(self, errand: Errand) -> None:
        self.errands.append(errand)


@pytest.mark.parametrize("how", ["closed", "releasing", "stopping"])
@pytest.mark.parametrize("delivery", [Delivery.AT_LEAST_ONCE, Delivery.TRANSACTIONAL])
def test_what_is_stopped_while_it_waits_for_a_thread_does_not_start(
    monkeypatch: pytest.MonkeyPatch, how: str, delivery: Delivery
) -> None:
    def run(*arguments: object) -> Verdict:
        ran.append(arguments)
        return Verdict(Outcome.SUCCEEDED)

    for name in ("run_blocking", "run_transactional"):
        monkeypatch.setattr(executor_module, name, run)
    ran: list[object] = []
    done: list[tuple[Slot, Verdict | None]] = []
    queue = Queue()

    async def launch_and_stop() -> None:
        nothing: Any = None
        executor = Executor(
            nothing,
            nothing,
            nothing,
            cast(Any, SimpleNamespace(payload_limit=100)),
            cast(Any, queue),
            lambda slot, verdict: done.append((slot, verdict)),
            lambda slot: None,
        )
        for stopped in (True, False):
            job = SimpleNamespace(
                id=1, task="work", attempt=1, token=1, undoing=None, delivery=delivery
            )
            definition = SimpleNamespace(is_async=False)
            context = SimpleNamespace(noticed=False)
            slot = Slot(cast(Any, job), cast(Any, definition), cast(Any, context), False)
            executor.launch(slot)
            setattr(slot, how, stopped)
        for errand in queue.errands:
            errand.perform()
        await asyncio.sleep(0)

    monkeypatch.setattr(Slot, "verdict_when_stopped", lambda slot, error: None)
    asyncio.run(launch_and_stop())
    assert len(ran) == 1
    assert [verdict and verdict.outcome for _, verdict in done] == [None, Outcome.SUCCEEDED]
