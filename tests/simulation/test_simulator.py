"""The simulator itself: it takes the same course each time, finds nothing, and would find it."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.simulation.simulator import load, sabotage
from tests.simulation.simulator.__main__ import seeds_of
from tests.simulation.simulator.wire import CRASHES, LOSSES
from tests.simulation.simulator.world import STRIKES, World

HANDFUL = range(40)
"""Runs with each test run; `make simulate` has more."""

FURTHER = range(200, 360)
"""Where another Python takes another course, and those that are known to be red are not."""

OF_THEIR_OWN = {load.undo.name, load.react.name, load.beat.name, load.item.name}
"""Tasks whose jobs come from compensations, events, schedules and flows."""

ONCE_RED = (1433, 3058, 4303, 8475, 8699)
"""Seeds that have found a fault which is mended."""


def test_no_fault_breaks_a_promise() -> None:
    outcomes = [World(seed).run() for seed in (*HANDFUL, *ONCE_RED)]
    assert {each.seed: each.violations for each in outcomes if each.violations} == {}
    jobs = sum((each.jobs for each in outcomes), Counter())
    assert {*(task.name for task in load.KINDS), *OF_THEIR_OWN} <= set(jobs)
    faults = sum((each.faults for each in outcomes), Counter())
    kinds = {kind for kinds in STRIKES for kind in kinds} | {
        fate.value for fate in (*CRASHES, *LOSSES)
    }
    assert kinds <= set(faults)


def test_one_seed_is_one_run() -> None:
    first, again, other = World(3).run(), World(3).run(), World(4).run()
    assert first == again
    assert first.digest != other.digest


@pytest.mark.parametrize(
    ("protection", "seeds"),
    [
        (sabotage.no_fencing, (21, 60)),
        (sabotage.no_unique_tick, (0, 1, 4)),
        (sabotage.no_lease_check, (7, 21)),
        (sabotage.no_second_look_at_claims, (27, 124)),
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
        [sys.executable, "-m", "tests.simulation.simulator", "0-29"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    assert "30 of 30 runs in" in finished.stdout
    assert "red seeds: none" in finished.stdout


@pytest.mark.parametrize("text", ["", "x", "9-3", "1-", "-1"])
def test_seeds_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(SystemExit, match="expected one seed such as 17"):
        seeds_of(text)
