"""Taking back the jobs of workers that are gone, and leaving alone those that are only late."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from duly.clock import runtime_clock
from duly.errors import StoreUnavailable
from duly.model.job import State
from duly.registry.task import Registry
from duly.runtime.machine import machine_identity, process_started
from duly.runtime.watchdog import ORPHANS_EVERY, Watchdog
from duly.store.clocked import ClockedStore
from duly.store.operation import Operation
from duly.store.protocol import Store
from tests.support.stores import FILES, LEASE, Scene, opened

PERIOD = LEASE.total_seconds() / 3
Look = Callable[[], None]


class _Unreliable(ClockedStore):
    """A store that cannot be reached for a while."""

    is_gone = False

    async def arun(self, operation: Operation[Any]) -> Any:
        if self.is_gone:
            raise StoreUnavailable("gone")
        return await self._store.arun(operation)


@pytest.fixture(params=FILES)
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    with opened(
        request.param, tmp_path, lambda: str(request.getfixturevalue("shared_database"))
    ) as store:
        scene = Scene(store)
        with runtime_clock.replaced(scene.clock):
            yield scene


@pytest.fixture
def store(scene: Scene) -> _Unreliable:
    return _Unreliable(scene.store, scene.clock)


@pytest.fixture
def look(store: _Unreliable) -> Iterator[Look]:
    """One look of a watchdog that has just started."""
    watchdog = Watchdog(cast(Store, store), Registry("tests"), LEASE.total_seconds())
    with asyncio.Runner() as runner:

        def tick() -> None:
            assert runner.run(watchdog.tick()) == pytest.approx(PERIOD)

        yield tick


def _is_known(scene: Scene, worker: object) -> bool:
    return worker in {each.id for each in scene.store.run(scene.store.workers(scene.now))}


def test_nobody_is_reaped_at_the_first_look_after_an_outage(scene: Scene, look: Look) -> None:
    scene.submit()
    late = scene.hire()
    job = scene.take(late)
    look()
    scene.advance(5 * LEASE.total_seconds())
    look()
    assert _is_known(scene, late)
    assert scene.store.run(scene.store.renew([late], LEASE, scene.now)) == {late}
    scene.advance(PERIOD)
    look()
    assert _is_known(scene, late)
    assert scene.get(job.id).state is State.RUNNING


def test_who_stays_expired_for_a_whole_period_is_reaped(scene: Scene, look: Look) -> None:
    scene.submit()
    gone = scene.hire()
    job = scene.take(gone)
    scene.advance(LEASE.total_seconds() + 1)
    look()
    scene.advance(PERIOD / 2)
    look()
    assert _is_known(scene, gone)
    scene.advance(PERIOD / 2)
    look()
    assert not _is_known(scene, gone)
    assert scene.get(job.id).state is State.PENDING


def test_what_was_seen_before_the_store_went_away_does_not_count(
    scene: Scene, store: _Unreliable, look: Look
) -> None:
    late = scene.hire()
    scene.advance(LEASE.total_seconds() + 1)
    look()
    store.is_gone = True
    scene.advance(PERIOD)
    with pytest.raises(StoreUnavailable):
        look()
    store.is_gone = False
    scene.advance(PERIOD)
    look()
    assert _is_known(scene, late)
    scene.advance(PERIOD)
    look()
    assert not _is_known(scene, late)


def test_a_process_of_this_machine_that_is_gone_is_reaped_at_once(scene: Scene, look: Look) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        scene.submit()
        worker = scene.hire(
            machine=machine_identity(),
            pid=process.pid,
            process_started=process_started(process.pid),
        )
        job = scene.take(worker)
        look()
        assert _is_known(scene, worker)
    look()
    assert not _is_known(scene, worker)
    assert scene.get(job.id).state is State.PENDING


def test_jobs_of_unknown_workers_are_taken_back_now_and_then(scene: Scene, look: Look) -> None:
    job = scene.submit()
    worker = scene.hire()
    scene.take(worker)
    scene.forget(worker)
    for _ in range(ORPHANS_EVERY):
        assert scene.get(job.id).state is State.RUNNING
        look()
        scene.advance(1)
    assert scene.get(job.id).state is State.PENDING
