"""What is measured, by the names that ONLY= takes, in the order of a run."""

from __future__ import annotations

from collections.abc import Callable

from bench.engines.protocol import Engine
from bench.figures import Figure
from bench.scenarios import (
    backlog,
    batch,
    bulk,
    crowd,
    disk,
    drain,
    held,
    horizon,
    idle,
    lanes,
    latency,
    lateness,
    memory,
    rate,
    recovery,
    results,
    soak,
    start,
    steady,
    submit,
    writes,
)
from bench.sizes import Size

Measure = Callable[[Engine, Size], list[Figure]]

SCENARIOS: dict[str, Measure] = {
    "submit": submit.measure,
    "bulk": bulk.measure,
    "drain": drain.measure,
    "batch": batch.measure,
    "lanes": lanes.measure,
    "crowd": crowd.measure,
    "steady": steady.measure,
    "latency": latency.measure,
    "rate": rate.measure,
    "results": results.measure,
    "lateness": lateness.measure,
    "backlog": backlog.measure,
    "horizon": horizon.measure,
    "held": held.measure,
    "recovery": recovery.measure,
    "start": start.measure,
    "memory": memory.measure,
    "disk": disk.measure,
    "writes": writes.measure,
    "idle": idle.measure,
    "soak": soak.measure,
}
