"""Async tasks on the event loop: those that never wait share an asyncio task, and nothing else."""

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import ContextVar, copy_context
from types import SimpleNamespace
from typing import Any, cast

import pytest

from duly.runtime.coroutines import Coroutines, _stepped
from duly.runtime.slot import Slot

mark: ContextVar[str] = ContextVar("mark", default="nobody's")


def slot(code: Callable[[], Coroutine[Any, Any, None]]) -> Slot:
    return cast(Slot, SimpleNamespace(code=code, closed=False, task=None))


async def run(given: Slot) -> None:
    await cast(Any, given).code()


async def all_launched(coroutines: Coroutines, *slots: Slot) -> None:
    for each in slots:
        coroutines.launch(each)
    mine = asyncio.current_task()
    while others := [task for task in asyncio.all_tasks() if task is not mine]:
        await asyncio.wait(others)


def test_those_that_do_not_wait_share_a_task_and_not_a_context() -> None:
    seen: list[tuple[str, asyncio.Task[Any] | None]] = []

    async def code() -> None:
        seen.append((mark.get(), asyncio.current_task()))
        mark.set("mine")

    async def main() -> None:
        await all_launched(Coroutines(run), *[slot(code) for _ in range(50)])

    asyncio.run(main())
    assert [value for value, _ in seen] == ["nobody's"] * 50
    assert len({task for _, task in seen}) == 1
    assert seen[0][1] is not None


def test_one_that_waits_holds_up_nobody_and_keeps_its_task_and_context() -> None:
    order: list[str] = []
    tasks: dict[str, asyncio.Task[Any] | None] = {}

    async def main() -> None:
        gate = asyncio.Event()

        async def waits(name: str) -> None:
            mark.set(name)
            tasks[name] = asyncio.current_task()
            order.append(f"{name} begins")
            await gate.wait()
            assert mark.get() == name
            assert asyncio.current_task() is tasks[name]
            order.append(f"{name} ends")

        async def opens() -> None:
            order.append("the gate opens")
            gate.set()

        await all_launched(
            Coroutines(run),
            slot(lambda: waits("first")),
            slot(lambda: waits("second")),
            slot(opens),
        )

    asyncio.run(main())
    assert order == [
        "first begins",
        "second begins",
        "the gate opens",
        "first ends",
        "second ends",
    ]
    assert tasks["first"] is not tasks["second"]


def test_a_cancellation_reaches_the_one_that_waits_alone() -> None:
    ended: list[str] = []

    async def main() -> None:
        second_began = asyncio.Event()

        async def waits(name: str) -> None:
            if name == "second":
                second_began.set()
            try:
                await asyncio.sleep(0.01 if name == "second" else 60)
            except asyncio.CancelledError:
                name += " was cancelled"
            ended.append(name)

        coroutines = Coroutines(run)
        first, second = slot(lambda: waits("first")), slot(lambda: waits("second"))
        coroutines.launch(first)
        coroutines.launch(second)
        await second_began.wait()
        assert first.task is not None
        first.task.cancel()
        third = slot(lambda: waits("third, at once"))
        third.closed = True
        await all_launched(coroutines, third)

    asyncio.run(main())
    assert sorted(ended) == ["first was cancelled", "second"]


@pytest.mark.parametrize("coroutine_first", [True, False])
def test_what_nobody_waits_for_is_cleared_away_in_any_order(coroutine_first: bool) -> None:
    ended: list[str] = []

    async def waits() -> None:
        try:
            await asyncio.sleep(0)
        finally:
            ended.append("closed")

    coroutine = waits()
    stepped = _stepped(coroutine, copy_context(), lambda: None)
    next(stepped)
    if coroutine_first:
        coroutine.close()
    stepped.close()
    assert ended == ["closed"]
