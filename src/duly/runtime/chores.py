"""What a worker has to do and nobody waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class Chores:
    """Does them on the event loop; `done` is called after each."""

    def __init__(self, done: Callable[[], None]) -> None:
        self._done = done
        self._loop = asyncio.get_running_loop()
        self._under_way: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._under_way)

    def begin(self, chore: Coroutine[Any, Any, None]) -> None:
        """Have this done."""
        task = self._loop.create_task(chore)
        self._under_way.add(task)
        task.add_done_callback(self._ended)

    async def finished(self, patience: float) -> None:
        """Wait for all but the one that asks, for so many seconds at most."""
        others = self._under_way - {asyncio.current_task()}
        if others:
            await asyncio.wait(others, timeout=patience)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        self._done()
