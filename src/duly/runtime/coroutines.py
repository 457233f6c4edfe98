"""Running async tasks on the event loop: those that never wait share one asyncio task."""

from __future__ import annotations

import asyncio
import types
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, copy_context
from typing import Any

from duly.runtime.slot import Slot


class Coroutines:
    """Starts slots in the order they come.

    An asyncio task and a turn of the event loop for each job would cost more than many a job
    does. One asyncio task takes job after job for as long as each ends without waiting for
    anything. The first that waits has that task to itself from then on, so that cancelling it
    reaches nobody else, and a new one takes the rest. Each job has a context of its own.
    """

    def __init__(self, run: Callable[[Slot], Coroutine[Any, Any, None]]) -> None:
        self._run = run
        self._loop = asyncio.get_running_loop()
        self._ready: deque[Slot] = deque()
        self._runner: asyncio.Task[None] | None = None

    def launch(self, slot: Slot) -> None:
        """Run the slot's code in one of the next turns of the event loop."""
        self._ready.append(slot)
        if self._runner is None:
            self._runner = self._loop.create_task(self._take())

    async def _take(self) -> None:
        mine = self._runner
        while self._ready:
            slot = self._ready.popleft()
            if slot.closed:
                continue
            slot.task = mine
            await _stepped(self._run(slot), copy_context(), self._hand_over)
            if self._runner is not mine:
                return
            slot.task = None
        self._runner = None

    def _hand_over(self) -> None:
        """What runs now waits for something: the rest is not to wait for it."""
        self._runner = self._loop.create_task(self._take()) if self._ready else None


@types.coroutine
def _stepped(
    coroutine: Coroutine[Any, Any, None], context: Context, waits: Callable[[], None]
) -> Generator[Any, Any, None]:
    """Run a coroutine in its context; `waits` is called before it waits for the first time."""
    step: Callable[[Any], Any] = coroutine.send
    value: Any = None
    waited = False
    while True:
        try:
            awaited = context.run(step, value)
        except StopIteration:
            return
        if not waited:
            waited = True
            waits()
        try:
            value = yield awaited
            step = coroutine.send
        except GeneratorExit:
            # Nobody waits for it any more; who clears away both may have begun with the coroutine.
            context.run(coroutine.close)
            raise
        except BaseException as error:
            value, step = error, coroutine.throw
