"""Signals of commits on their way to an event loop."""

from __future__ import annotations

import asyncio
import os
import select
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from duly.runtime import watching as watching_module
from duly.runtime.watching import EASED, Watching
from duly.store.operation import Wake
from duly.store.protocol import Store
from tests.support.stores import FILES, draft, opened

PATIENCE = 60.0


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            if condition():
                return
            await asyncio.sleep(0.001)


class Told:
    """Counts the signals that are passed on."""

    def __init__(self) -> None:
        self.number = 0

    def __call__(self) -> None:
        self.number += 1

    async def more_than(self, number: int) -> None:
        await until(lambda: self.number > number)

    async def no_more(self) -> int:
        """Wait until nothing comes any more; answers how many there were."""
        before = -1
        while before < self.number:
            before = self.number
            await asyncio.sleep(0.05)
        return before


class Bell:
    """A change with a descriptor, or without one."""

    hears = True

    def __init__(self) -> None:
        self.readable, self._writable = os.pipe()
        self.descriptor: int | None = self.readable
        self.closed = threading.Event()
        self.broken: Exception | None = None
        self.on_wait: Callable[[], None] = lambda: None

    def ring(self) -> None:
        os.write(self._writable, b".")

    def renew(self) -> None:
        """As SQLite's watch does when its file was removed: another descriptor, maybe of the same
        number."""
        os.close(self.readable)
        os.close(self._writable)
        self.readable, self._writable = os.pipe()
        self.descriptor = self.readable

    def wait(self, timeout: float) -> bool:
        if self.broken is not None:
            raise self.broken
        ready, _, _ = select.select([self.readable], [], [], timeout)
        if ready:
            os.read(self.readable, 4096)
        self.on_wait()
        return bool(ready)

    def close(self) -> None:
        self.closed.set()


class Belfry:
    """A store with nothing but signals; each watch on it gets a bell."""

    def __init__(self) -> None:
        self.bells: list[Bell] = []

    def watch(self, wake: Wake) -> Bell:
        self.bells.append(Bell())
        return self.bells[-1]


@pytest.fixture
def belfry() -> Belfry:
    return Belfry()


def watched(belfry: Belfry, told: Told, rest: float = 0.0) -> Watching:
    store: Any = belfry
    return Watching(store, asyncio.get_running_loop(), told, Wake.WORKERS, rest)


async def listening(watching: Watching) -> None:
    """Until the event loop waits for the descriptor itself."""
    await until(lambda: watching._on_loop is not None and watching._on_loop._listening is not None)


def test_a_signal_reaches_the_loop_without_a_thread(belfry: Belfry) -> None:
    async def program() -> None:
        told = Told()
        watching = watched(belfry, told)
        await listening(watching)
        for _ in range(5):
            before = await told.no_more()
            belfry.bells[0].ring()
            await told.more_than(before)
        watching.close()
        assert await asyncio.to_thread(belfry.bells[0].closed.wait, PATIENCE)

    asyncio.run(program())


def test_a_descriptor_that_is_replaced_is_listened_to(belfry: Belfry) -> None:
    async def program() -> None:
        told = Told()
        watching = watched(belfry, told)
        await listening(watching)
        bell = belfry.bells[0]
        for _ in range(5):
            bell.on_wait = bell.renew
            before = await told.no_more()
            bell.ring()
            await told.more_than(before)
            bell.on_wait = lambda: None
            before = await told.no_more()
            bell.ring()
            await told.more_than(before)
        watching.close()

    asyncio.run(program())


def test_without_a_descriptor_a_thread_waits(belfry: Belfry) -> None:
    async def program() -> None:
        told = Told()
        watching = watched(belfry, told)
        await listening(watching)
        bell = belfry.bells[0]
        bell.on_wait = lambda: setattr(bell, "descriptor", None)
        bell.ring()
        await until(lambda: watching._on_loop is not None and watching._on_loop._ended.is_set())
        for _ in range(3):
            before = await told.no_more()
            bell.ring()
            await told.more_than(before)
        bell.on_wait = lambda: setattr(bell, "descriptor", bell.readable)
        bell.ring()
        await listening(watching)
        watching.close()

    asyncio.run(program())


def test_a_watch_that_breaks_is_begun_anew(
    belfry: Belfry, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(watching_module, "NAP", 0.01)

    async def program() -> None:
        told = Told()
        watching = watched(belfry, told)
        await listening(watching)
        belfry.bells[0].broken = OSError("it is gone")
        belfry.bells[0].ring()
        await until(lambda: len(belfry.bells) > 1)
        assert belfry.bells[0].closed.is_set()
        await listening(watching)
        before = await told.no_more()
        belfry.bells[1].ring()
        await told.more_than(before)
        watching.close()

    asyncio.run(program())
    assert "it is gone" in caplog.text


def test_who_rests_after_a_signal_is_told_of_the_next_one_then(belfry: Belfry) -> None:
    rest = 0.1

    async def program() -> None:
        told = Told()
        watching = watched(belfry, told, rest)
        await listening(watching)
        before = await told.no_more()
        belfry.bells[0].ring()
        await told.more_than(before)
        begun = time.monotonic()
        belfry.bells[0].ring()
        await told.more_than(before + 1)
        assert time.monotonic() - begun > rest / 2
        watching.close()

    asyncio.run(program())


def test_a_loop_that_is_closed_first_leaves_nothing_behind(
    belfry: Belfry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching_module, "NAP", 0.01)

    async def program() -> None:
        await listening(watched(belfry, Told()))

    asyncio.run(program())
    assert belfry.bells[0].closed.wait(PATIENCE)


def test_a_timer_that_rings_early_is_set_again(belfry: Belfry) -> None:
    """As those of event loops that count in milliseconds do."""

    async def program() -> None:
        told = Told()
        watching = watched(belfry, told, rest=0.03)
        await listening(watching)
        assert watching._on_loop is not None
        slow: Any = SlowClock()
        watching._on_loop._loop = slow
        for _ in range(5):
            before = await told.no_more()
            belfry.bells[0].ring()
            await told.more_than(before)
            belfry.bells[0].ring()
            await told.more_than(before + 1)
        watching.close()

    asyncio.run(program())


class SlowClock:
    """The event loop, with a clock that is behind that of its timers."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def time(self) -> float:
        return self._loop.time() - 0.005

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)


def test_who_is_closed_before_it_listens_ends_too(belfry: Belfry) -> None:
    async def program() -> None:
        watched(belfry, Told()).close()
        await until(lambda: all(bell.closed.is_set() for bell in belfry.bells))

    asyncio.run(program())


@pytest.fixture(params=FILES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """An empty store of each engine that processes can share."""
    with opened(
        request.param, tmp_path, lambda: str(request.getfixturevalue("shared_database"))
    ) as it:
        yield it


def test_who_is_at_work_is_told_now_and_then_and_who_waits_at_once(store: Store) -> None:
    submit = store.enqueue([draft()])
    store.run(submit)

    async def program() -> None:
        told = Told()
        watching = Watching(store, asyncio.get_running_loop(), told, Wake.WORKERS)
        await listening(watching)
        await told.no_more()
        watching.ease()
        before, begun = told.number, time.monotonic()
        for _ in range(100):
            await store.arun(store.enqueue([draft()]))
        lasted = time.monotonic() - begun
        # One that was on its way.
        assert told.number - before <= 1 + lasted / EASED
        await store.arun(store.enqueue([draft()]))
        await told.more_than(before)
        watching.attend()
        before = await told.no_more()
        async with asyncio.timeout(PATIENCE):
            while told.number == before:
                await store.arun(store.enqueue([draft()]))
        watching.close()

    asyncio.run(program())


def test_a_listener_whose_connection_was_ended_hears_again(
    tmp_path: Path, shared_database: str
) -> None:
    async def program(store: Store) -> None:
        told = Told()
        watching = Watching(store, asyncio.get_running_loop(), told, Wake.WORKERS)
        await listening(watching)
        before = await told.no_more()
        with psycopg.connect(shared_database, autocommit=True) as connection:
            ended = connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE query LIKE 'LISTEN%' AND datname = current_database()"
            ).fetchall()
        assert ended == [(True,)]
        # It does not know what it has missed.
        await told.more_than(before)
        await listening(watching)
        before = await told.no_more()
        await store.arun(store.enqueue([draft()]))
        await told.more_than(before)
        watching.close()

    with opened("postgres", tmp_path, lambda: shared_database) as it:
        asyncio.run(program(it))
