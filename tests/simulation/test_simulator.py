"""The simulator itself: it takes the same course each time, finds nothing, and would find it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.simulation.simulator import sabotage
from tests.simulation.simulator.world import World

HANDFUL = range(12)
"""Runs with each test run; `make simulate` has more."""

FURTHER = range(100, 160)
"""Where another Python takes another course, and those that are known to be red are not."""

ONCE_RED: tuple[int, ...] = ()
"""Seeds that have found a fault which is mended."""


@pytest.mark.parametrize("seed", [*HANDFUL, *ONCE_RED])
def test_no_fault_breaks_a_promise(seed: int) -> None:
    outcome = World(seed).run()
    assert outcome.violations == ()
    assert outcome.jobs > 3


def test_one_seed_is_one_run() -> None:
    first, again, other = World(3).run(), World(3).run(), World(4).run()
    assert first == again
    assert first.digest != other.digest


@pytest.mark.parametrize(
    ("protection", "seeds"),
    [
        (sabotage.no_fencing, (16,)),
        (sabotage.no_unique_tick, (0, 1, 2, 4)),
        (sabotage.no_lease_check, (2, 6)),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_a_protection_that_is_taken_out_is_missed(
    protection: Callable[[pytest.MonkeyPatch], None],
    seeds: tuple[int, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    protection(monkeypatch)
    assert any(World(seed).run().violations for seed in (*seeds, *FURTHER))


def test_many_seeds_run_in_processes() -> None:
    finished = subprocess.run(
        [sys.executable, "-m", "tests.simulation.simulator", "0-1"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    assert "2 runs in" in finished.stdout
    assert "red seeds: none" in finished.stdout
