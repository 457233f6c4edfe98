"""What workers that have nothing to do ask of the database."""

from __future__ import annotations

from pathlib import Path

from tests.cost.postgres_counts import statements_within
from tests.support.fleet import opened

PROCESSES = 4
WINDOW = 10.0
WINDOWS = 6
MOST_A_SECOND = 0.3
"""Statements a second for each worker process, heartbeats left out."""

NOOP = """
@app.task
async def noop() -> None:
    pass
"""


def test_idle_workers_ask_for_next_to_nothing(tmp_path: Path, postgres_url: str) -> None:
    most = int(MOST_A_SECOND * PROCESSES * WINDOW)
    counts: list[int] = []
    with opened(tmp_path, postgres_url, NOOP) as fleet:
        fleet.start("--processes", PROCESSES)
        fleet.settled([fleet.tasks.noop.enqueue()])
        # What belongs to the start, or comes once in half a minute, may fall into a window; what
        # is asked again and again falls into every one.
        while len(counts) < WINDOWS and (not counts or counts[-1] > most):
            counts.append(statements_within(postgres_url, WINDOW))
    assert counts[-1] <= most, counts
