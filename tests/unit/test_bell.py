"""The bell that wakes a thread which waits for a descriptor."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from duly.client.bell import Bell

LONG = 20.0


@pytest.fixture
def bell() -> Iterator[Bell]:
    bell = Bell()
    yield bell
    bell.close()


def test_it_is_heard_once_however_often_it_was_rung(bell: Bell) -> None:
    assert not bell.wait(0.0)
    for _ in range(100_000):
        bell.ring()
    while bell.wait(0.0):
        pass
    bell.ring()
    assert bell.wait(LONG)
    assert not bell.wait(0.0)


def test_it_wakes_who_waits(bell: Bell) -> None:
    with ThreadPoolExecutor(1) as threads:
        heard = threads.submit(bell.wait, LONG)
        bell.ring()
        assert heard.result(LONG / 2)


def test_another_descriptor_ends_the_wait(bell: Bell) -> None:
    reading, writing = os.pipe()
    with ThreadPoolExecutor(1) as threads:
        heard = threads.submit(bell.wait, LONG, reading)
        os.write(writing, b"!")
        assert heard.result(LONG / 2) is False
    os.close(reading)
    os.close(writing)


def test_what_is_closed_or_nobody_has_leaves_no_descriptor() -> None:
    before = len(os.listdir("/proc/self/fd"))
    kept = Bell()
    kept.close()
    kept.close()
    Bell()
    assert len(os.listdir("/proc/self/fd")) == before
