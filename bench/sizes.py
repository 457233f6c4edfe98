"""How much is measured: the same scenarios, with other numbers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The numbers of one run: jobs, unless the name says otherwise; `crowd` is processes."""

    name: str
    submitted_by_one: int
    submitted_by_many: int
    in_bulk: int
    drained: int
    turns: int
    batches: tuple[int, ...]
    drained_per_batch: int
    crowd: int
    drained_by_crowd: int
    steady: int
    on_idle_system: int
    seconds_at_rate: float
    rates: tuple[int, ...]
    delayed: int
    others: int
    backlogs: tuple[int, ...]
    claims: int
    drained_per_backlog: int
    behind_horizon: int
    held_seconds: float
    recoveries: int
    starts: int
    run_by_one_child: int
    on_disk: int
    counted: int
    idle_seconds: float
    soak_seconds: float
    soak_rate: int
    of_peers: int
    on_idle_peers: int


TINY = Size(
    name="tiny",
    submitted_by_one=10,
    submitted_by_many=64,
    in_bulk=300,
    drained=300,
    turns=1,
    batches=(20,),
    drained_per_batch=100,
    crowd=2,
    drained_by_crowd=100,
    steady=300,
    on_idle_system=5,
    seconds_at_rate=0.3,
    rates=(100,),
    delayed=5,
    others=300,
    backlogs=(0, 300),
    claims=4,
    drained_per_backlog=100,
    behind_horizon=400,
    held_seconds=0.6,
    recoveries=1,
    starts=1,
    run_by_one_child=200,
    on_disk=300,
    counted=200,
    idle_seconds=0.5,
    soak_seconds=0.6,
    soak_rate=200,
    of_peers=100,
    on_idle_peers=5,
)
SMALL = Size(
    name="small",
    submitted_by_one=300,
    submitted_by_many=1_600,
    in_bulk=10_000,
    drained=5_000,
    turns=1,
    batches=(10, 200),
    drained_per_batch=2_000,
    crowd=8,
    drained_by_crowd=4_000,
    steady=5_000,
    on_idle_system=40,
    seconds_at_rate=1.0,
    rates=(100, 250, 1_000),
    delayed=40,
    others=20_000,
    backlogs=(0, 20_000),
    claims=40,
    drained_per_backlog=1_000,
    behind_horizon=8_000,
    held_seconds=6.0,
    recoveries=1,
    starts=5,
    run_by_one_child=2_000,
    on_disk=5_000,
    counted=2_000,
    idle_seconds=2.0,
    soak_seconds=6.0,
    soak_rate=2_000,
    of_peers=2_000,
    on_idle_peers=40,
)
NORMAL = Size(
    name="normal",
    submitted_by_one=2_000,
    submitted_by_many=16_000,
    in_bulk=50_000,
    drained=50_000,
    turns=3,
    batches=(1, 10, 50, 200, 500),
    drained_per_batch=10_000,
    crowd=32,
    drained_by_crowd=120_000,
    steady=50_000,
    on_idle_system=800,
    seconds_at_rate=10.0,
    rates=(100, 250, 1_000),
    delayed=1_600,
    others=1_000_000,
    backlogs=(0, 100_000, 1_000_000, 5_000_000),
    claims=600,
    drained_per_backlog=10_000,
    behind_horizon=120_000,
    held_seconds=30.0,
    recoveries=3,
    starts=15,
    run_by_one_child=20_000,
    on_disk=50_000,
    counted=20_000,
    idle_seconds=20.0,
    soak_seconds=60.0,
    soak_rate=5_000,
    of_peers=10_000,
    on_idle_peers=600,
)
LARGE = Size(
    name="large",
    submitted_by_one=10_000,
    submitted_by_many=80_000,
    in_bulk=200_000,
    drained=200_000,
    turns=3,
    batches=(1, 10, 50, 100, 200, 500, 1_000),
    drained_per_batch=50_000,
    crowd=32,
    drained_by_crowd=240_000,
    steady=200_000,
    on_idle_system=2_000,
    seconds_at_rate=60.0,
    rates=(100, 250, 1_000),
    delayed=2_000,
    others=1_000_000,
    backlogs=(0, 100_000, 1_000_000, 5_000_000),
    claims=1_200,
    drained_per_backlog=20_000,
    behind_horizon=600_000,
    held_seconds=600.0,
    recoveries=5,
    starts=25,
    run_by_one_child=200_000,
    on_disk=200_000,
    counted=50_000,
    idle_seconds=60.0,
    soak_seconds=3_600.0,
    soak_rate=5_000,
    of_peers=50_000,
    on_idle_peers=1_000,
)

SIZES = {size.name: size for size in (TINY, SMALL, NORMAL, LARGE)}
