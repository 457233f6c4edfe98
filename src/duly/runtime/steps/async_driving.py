"""Carrying out the conversations of durable steps on an event loop.

Apart from `driving`: a program that only submits jobs does without asyncio, which would be half of
what `import duly` costs.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from contextvars import copy_context
from typing import Any, TypeVar

from duly.runtime.steps.commands import Call, Pause, Quiet, Suspended, Talk, Turn
from duly.runtime.steps.driving import Refused, Scope, perform, scope, too_long
from duly.runtime.steps.durable import Durable
from duly.runtime.steps.port import Port

T = TypeVar("T")

TURNS = 5


class AsyncDriver:
    """Carries out the conversations of one attempt on its event loop.

    A step that has to wait ends the attempt only when nothing else of it is under way: what runs
    beside it, in a gather, is recorded first.
    """

    def __init__(self, durable: Durable, port: Port) -> None:
        self._durable = durable
        self._port = port
        self._active = 0
        self._rested = asyncio.Event()

    async def drive(self, talk: Talk[T]) -> T:
        """Carry it out."""
        if self._durable.suspended:
            raise Suspended
        self._enter()
        answer: Any = None
        error: Exception | None = None
        try:
            while True:
                command = talk.send(answer) if error is None else talk.throw(error)
                answer, error = None, None
                try:
                    match command:
                        case Call():
                            answer = await self._call(command)
                        case Pause(seconds=seconds):
                            await asyncio.sleep(seconds)
                        case Turn():
                            await _turns()
                        case Quiet():
                            await self._quiet()
                        case request:
                            answer = await self._port.aask(request)
                except Exception as problem:
                    error = problem
        except StopIteration as stop:
            result: T = stop.value
            return result
        finally:
            self._leave()

    def _enter(self) -> None:
        self._active += 1
        self._rested.clear()

    def _leave(self) -> None:
        self._active -= 1
        if self._active == 0:
            self._rested.set()

    async def _quiet(self) -> None:
        self._leave()
        try:
            while True:
                await self._rested.wait()
                await _turns()
                if self._active == 0:
                    return
        finally:
            self._enter()

    async def _call(self, call: Call) -> Any:
        context = copy_context()
        context.run(scope.set, Scope(call.idempotency_key))
        if call.commit is None and inspect.iscoroutinefunction(call.function):
            work = asyncio.create_task(call.function(*call.args, **call.kwargs), context=context)
        else:
            work = asyncio.create_task(self._in_thread(call), context=context)
        try:
            return await asyncio.wait_for(work, call.timeout)
        except TimeoutError:
            if call.timeout is None or not work.cancelled():
                raise
            raise too_long(call.timeout) from None

    async def _in_thread(self, call: Call) -> Any:
        decided = threading.Lock()
        thread = asyncio.ensure_future(asyncio.to_thread(perform, call, self._port, decided))
        try:
            try:
                value = await asyncio.shield(thread)
            except asyncio.CancelledError:
                if decided.acquire(blocking=False):
                    raise
                value = await thread
        except Refused:
            return None
        return await value if inspect.isawaitable(value) else value


async def _turns() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)
