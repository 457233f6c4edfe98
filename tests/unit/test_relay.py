"""Telling those who wait for what was done together."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor, wait
from unittest.mock import patch

import pytest

from duly.store import awaiting
from duly.store.awaiting import Awaited, Blocked, Relay

MANY = 16
PATIENCE = 30.0


def test_all_are_told_their_own(relay: Relay, threads: ThreadPoolExecutor) -> None:
    blocked = [Blocked[int]() for _ in range(MANY)]
    waiting = [threads.submit(each.wait) for each in blocked]
    failed = ValueError("this one")
    relay.begin([(each, n, failed if n == 5 else None) for n, each in enumerate(blocked)])
    for number, future in enumerate(waiting):
        if number == 5:
            assert future.exception(PATIENCE) is failed
        else:
            assert future.result(PATIENCE) == number
    assert relay.finished


def test_each_is_woken_by_the_one_before(relay: Relay, threads: ThreadPoolExecutor) -> None:
    first, second, third = (Blocked[int]() for _ in range(3))
    relay.begin([(first, 1, None), (second, 2, None), (third, 3, None)])
    assert [each.woken for each in (first, second, third)] == [True, False, False]
    assert first.wait() == 1
    assert [each.woken for each in (first, second, third)] == [True, True, False]
    assert second.wait() == 2
    assert third.wait() == 3
    assert relay.finished


def test_who_was_interrupted_holds_up_nobody_once_it_is_finished(
    relay: Relay, threads: ThreadPoolExecutor
) -> None:
    interrupted, *others = [Blocked[int]() for _ in range(MANY)]
    waiting = [threads.submit(each.wait) for each in others]
    relay.begin([(each, 0, None) for each in (interrupted, *others)])
    assert not relay.finished
    assert not wait(waiting, timeout=0.05).done
    relay.finish()
    assert len(wait(waiting, PATIENCE).done) == MANY - 1
    assert relay.finished


def test_another_relay_finishes_one_that_takes_too_long(
    relay: Relay, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(awaiting, "LONG", 0.0)
    interrupted, stranded, next_one = (Blocked[int]() for _ in range(3))
    waiting = [threads.submit(each.wait) for each in (stranded, next_one)]
    relay.begin([(interrupted, 1, None), (stranded, 2, None)])
    relay.begin([(next_one, 3, None)])
    assert [future.result(PATIENCE) for future in waiting] == [2, 3]


def test_another_relay_goes_on_where_one_ends_that_is_under_way(
    relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(awaiting, "LONG", PATIENCE)
    first, second, third, fourth = all_four = [Blocked[int]() for _ in range(4)]
    relay.begin([(first, 1, None), (second, 2, None)])
    relay.begin([(third, 3, None), (fourth, 4, None)])
    assert [each.woken for each in all_four] == [True, False, False, False]
    for number, each in enumerate(all_four, 1):
        assert each.woken
        assert each.wait() == number
    assert relay.finished


def test_one_that_has_gone_on_already_is_followed_all_the_same() -> None:
    first, following = Blocked[int](), Blocked[int]()
    first.set_result(1)
    assert first.wait() == 1
    first.be_followed(following)
    assert following.woken


def test_one_that_is_kept_does_not_keep_those_that_followed(relay: Relay) -> None:
    kept, following, later = (Blocked[int]() for _ in range(3))
    relay.begin([(kept, 1, None), (following, 2, None)])
    kept.wait()
    following.wait()
    kept.be_followed(later)
    assert later.woken
    assert kept._following is None


def test_whoever_is_no_thread_is_told_at_once(relay: Relay) -> None:
    async def program() -> None:
        awaited, refused = Awaited[int](), Awaited[int]()
        future: Future[int] = Future()
        asleep = Blocked[int]()
        wrong = ValueError("wrong")
        relay.begin(
            [(asleep, 0, None), (awaited, 1, None), (refused, None, wrong), (future, 2, None)]
        )
        assert future.result(0) == 2
        assert await awaited.future == 1
        with pytest.raises(ValueError, match="wrong"):
            await refused.future

    asyncio.run(program())


def test_to_wake_twice_changes_nothing() -> None:
    blocked = Blocked[int]()
    blocked.set_result(7)
    blocked.wake()
    assert blocked.wait() == 7
    blocked.wake()


def test_who_is_interrupted_while_waking_another_holds_up_nobody(
    relay: Relay, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, last = Blocked[int](), Blocked[int]()
    waiting = threads.submit(last.wait)
    relay.begin([(first, 1, None), (last, 2, None)])
    with monkeypatch.context() as patch:
        patch.setattr(Blocked, "wake", interrupted)
        with pytest.raises(KeyboardInterrupt):
            first.wait()
    relay.finish()
    assert waiting.result(PATIENCE) == 2


def test_coroutines_are_told_their_own_in_one_call(relay: Relay) -> None:
    failed = ValueError("this one")

    async def wait_for_all() -> tuple[list[int | BaseException], int]:
        loop = asyncio.get_running_loop()
        with patch.object(
            loop, "call_soon_threadsafe", side_effect=loop.call_soon_threadsafe
        ) as call:
            awaited = [Awaited[int]() for _ in range(4)]
            awaited[2].future.cancel()
            relay.begin([(each, n, failed if n == 1 else None) for n, each in enumerate(awaited)])
            futures = (each.future for each in awaited)
            together = asyncio.gather(*futures, return_exceptions=True)
            return await asyncio.wait_for(together, PATIENCE), call.call_count

    came, calls = asyncio.run(wait_for_all())
    assert came[:2] == [0, failed]
    assert isinstance(came[2], asyncio.CancelledError)
    assert came[3] == 3
    assert calls == 1


def test_an_event_loop_that_is_closed_keeps_nothing_from_another(relay: Relay) -> None:
    async def gone() -> Awaited[int]:
        return Awaited()

    closed = asyncio.run(gone())

    async def wait_for_one() -> int:
        here = Awaited[int]()
        relay.begin([(closed, 1, None), (here, 2, None)])
        return await asyncio.wait_for(here.future, PATIENCE)

    assert asyncio.run(wait_for_one()) == 2


def interrupted(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.fixture
def relay() -> Relay:
    return Relay()


@pytest.fixture
def threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(MANY)
