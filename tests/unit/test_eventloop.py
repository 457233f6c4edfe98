"""Timers of a worker's event loop."""

from __future__ import annotations

import asyncio
import socket
import sys

import pytest

from duly.runtime import eventloop
from duly.runtime.eventloop import new_event_loop

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="only epoll rounds")


async def _naps_shorter_than_a_millisecond(most: int) -> bool:
    """Whether one of so many is: on a busy machine most are not."""
    loop = asyncio.get_running_loop()
    for _ in range(most):
        begun = loop.time()
        await asyncio.sleep(0.0001)
        taken = loop.time() - begun
        assert taken >= 0.0001
        if taken < 0.001:
            return True
    return False


@linux_only
def test_timers_are_not_rounded_up_to_milliseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = new_event_loop()
    try:
        assert loop.run_until_complete(_naps_shorter_than_a_millisecond(most=10_000))
        monkeypatch.setattr(eventloop, "_TOO_LARGE_FOR_SELECT", 0)
        assert not loop.run_until_complete(_naps_shorter_than_a_millisecond(most=20))
    finally:
        loop.close()


def test_what_happens_meanwhile_is_noticed_at_once() -> None:
    async def wait_for_a_message() -> bytes:
        loop = asyncio.get_running_loop()
        here, there = socket.socketpair()
        with here, there:
            here.setblocking(False)
            loop.call_later(0.01, there.send, b"hello")
            return await asyncio.wait_for(loop.sock_recv(here, 10), timeout=30)

    loop = new_event_loop()
    try:
        assert loop.run_until_complete(wait_for_a_message()) == b"hello"
    finally:
        loop.close()


def test_a_policy_of_the_program_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    class Own(asyncio.SelectorEventLoop):
        pass

    monkeypatch.setattr(asyncio, "new_event_loop", Own)
    loop = new_event_loop()
    loop.close()
    assert type(loop) is Own
