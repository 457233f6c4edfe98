"""Signals of commits on their way to an event loop."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from duly.runtime.watching import EASED, Watching
from duly.store.operation import Wake
from duly.store.sqlite.store import SqliteStore
from tests.support.stores import draft


def test_who_is_at_work_is_told_now_and_then_and_who_waits_at_once(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "jobs.db"))
    submit = store.enqueue([draft()])
    store.run(submit)

    async def program() -> None:
        told = 0
        heard = asyncio.Event()

        def changed() -> None:
            nonlocal told
            told += 1
            heard.set()

        watching = Watching(store, asyncio.get_running_loop(), changed, Wake.WORKERS)
        watching.ease()
        begun = time.monotonic()
        for _ in range(100):
            await store.arun(store.enqueue([draft()]))
        lasted = time.monotonic() - begun
        # One for what came before it was eased, and one that was on its way.
        assert told <= 2 + lasted / EASED
        watching.attend()
        await asyncio.sleep(0)
        heard.clear()
        async with asyncio.timeout(60):
            while not heard.is_set():
                await store.arun(store.enqueue([draft()]))
        watching.close()

    asyncio.run(program())
    store.close()
