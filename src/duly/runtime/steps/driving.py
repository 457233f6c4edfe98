"""Carrying out the conversations of durable steps, in a blocking task or on an event loop."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable
from contextvars import ContextVar, copy_context
from typing import Any, TypeVar

import msgspec

from duly.clock import runtime_clock as clock
from duly.runtime.steps.commands import Call, Pause, Quiet, StepTimeLimit, Suspended, Talk, Turn
from duly.runtime.steps.durable import Durable
from duly.runtime.steps.port import Port
from duly.runtime.threads import Errand

T = TypeVar("T")

REACTION = 2.0
TURNS = 5


class Scope(msgspec.Struct):
    """What the code of a step may ask for."""

    idempotency_key: str
    connection: Any = None


scope: ContextVar[Scope | None] = ContextVar("duly_step", default=None)


def drive(talk: Talk[T], durable: Durable, port: Port) -> T:
    """Carry it out in this thread."""
    if durable.suspended:
        raise Suspended
    answer: Any = None
    error: BaseException | None = None
    try:
        while True:
            command = talk.send(answer) if error is None else talk.throw(error)
            answer, error = None, None
            try:
                match command:
                    case Call():
                        answer = _limited(command, port)
                    case Pause(seconds=seconds):
                        clock.sleep(seconds)
                    case Turn() | Quiet():
                        continue
                    case request:
                        answer = port.ask(request)
            except Exception as problem:
                error = problem
    except StopIteration as stop:
        result: T = stop.value
        return result


def _perform(call: Call, port: Port, decided: threading.Lock) -> Any:
    """Call the function, in a transaction with its record if that is asked for.

    Whoever takes `decided` first, the commit or the time limit, is right; it is never given back.
    """
    if call.commit is None:
        return call.function(*call.args, **call.kwargs)
    with port.transaction() as (connection, keep):
        scope.set(Scope(call.idempotency_key, connection))
        write = call.commit(call.function(*call.args, **call.kwargs))
        if not decided.acquire(blocking=False):
            raise _Refused
        stored = keep(write)
        if stored is None:
            raise _Refused
        return stored


class _Refused(Exception):
    """What the step wrote is rolled back: its token is stale, or it took too long."""


def _limited(call: Call, port: Port) -> Any:
    """Call in a context of its own; with a time limit, in a thread of its own."""
    decided = threading.Lock()

    def scoped() -> Any:
        scope.set(Scope(call.idempotency_key))
        try:
            value = _perform(call, port, decided)
            return asyncio.run(_awaited(value)) if inspect.isawaitable(value) else value
        except _Refused:
            return None

    context = copy_context()
    if call.timeout is None:
        return context.run(scoped)
    ended = threading.Event()
    outcome: list[Any] = [None, None]

    def deliver(value: Any, problem: BaseException | None) -> None:
        outcome[:] = [value, problem]
        ended.set()

    errand = Errand(lambda: context.run(scoped), deliver)
    threading.Thread(target=errand.perform, name="duly-step", daemon=True).start()
    if not ended.wait(call.timeout):
        if decided.acquire(blocking=False):
            errand.interrupt()
            ended.wait(REACTION)
            raise _too_long(call.timeout)
        ended.wait()
    if outcome[1] is not None:
        raise outcome[1]
    return outcome[0]


async def _awaited(value: Awaitable[T]) -> T:
    return await value


def _too_long(limit: float) -> StepTimeLimit:
    return StepTimeLimit(f"the step ran for longer than its time limit of {limit:g} s")


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
            raise _too_long(call.timeout) from None

    async def _in_thread(self, call: Call) -> Any:
        decided = threading.Lock()
        thread = asyncio.ensure_future(asyncio.to_thread(_perform, call, self._port, decided))
        try:
            try:
                value = await asyncio.shield(thread)
            except asyncio.CancelledError:
                if decided.acquire(blocking=False):
                    raise
                value = await thread
        except _Refused:
            return None
        return await value if inspect.isawaitable(value) else value


async def _turns() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)
