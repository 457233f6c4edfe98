"""Carrying out the conversations of durable steps in a blocking task."""

from __future__ import annotations

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


def perform(call: Call, port: Port, decided: threading.Lock) -> Any:
    """Call the function, in a transaction with its record if that is asked for.

    Whoever takes `decided` first, the commit or the time limit, is right; it is never given back.
    """
    if call.commit is None:
        return call.function(*call.args, **call.kwargs)
    with port.transaction() as (connection, keep):
        scope.set(Scope(call.idempotency_key, connection))
        write = call.commit(call.function(*call.args, **call.kwargs))
        if not decided.acquire(blocking=False):
            raise Refused
        stored = keep(write)
        if stored is None:
            raise Refused
        return stored


class Refused(Exception):
    """What the step wrote is rolled back: its token is stale, or it took too long."""


def _limited(call: Call, port: Port) -> Any:
    """Call in a context of its own; with a time limit, in a thread of its own."""
    decided = threading.Lock()

    def scoped() -> Any:
        scope.set(Scope(call.idempotency_key))
        try:
            value = perform(call, port, decided)
            return _run(value) if inspect.isawaitable(value) else value
        except Refused:
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
            raise too_long(call.timeout)
        ended.wait()
    if outcome[1] is not None:
        raise outcome[1]
    return outcome[0]


def _run(value: Awaitable[T]) -> T:
    import asyncio

    async def awaited() -> T:
        return await value

    return asyncio.run(awaited())


def too_long(limit: float) -> StepTimeLimit:
    return StepTimeLimit(f"the step ran for longer than its time limit of {limit:g} s")
