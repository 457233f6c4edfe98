"""Draining a full queue of jobs that do nothing, with `duly worker` processes.

The limit: bare loops that claim and archive, 200 jobs a batch. In turns: a drain takes a second,
and a machine is not equally fast from one to the next.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from statistics import harmonic_mean

from bench.draining import CORES, bare_rate, duly_rate
from bench.engines.protocol import Engine
from bench.figures import Better, Figure, Target
from bench.sizes import Size

NAME = "drain"


def measure(engine: Engine, size: Size) -> list[Figure]:
    """Jobs a second, by kind of task and number of processes."""
    kinds = [
        (f"async tasks, {CORES} processes", "noop", CORES, Target(0.5)),
        ("async tasks, 1 process", "noop", 1, None),
        (f"sync tasks, {CORES} processes", "noop_blocking", CORES, Target(0.5)),
    ]
    drains: list[Callable[[], float]] = [
        partial(bare_rate, engine, size.drained),
        *(
            partial(duly_rate, engine, task, size.drained, processes)
            for _, task, processes, _ in kinds
        ),
    ]
    turns = [[drain() for drain in drains] for _ in range(size.turns)]
    limit, *rates = map(harmonic_mean, zip(*turns, strict=True))
    return [
        Figure(NAME, name, engine.name, "jobs/s", Better.HIGHER, rate, limit, target)
        for (name, _, _, target), rate in zip(kinds, rates, strict=True)
    ]
