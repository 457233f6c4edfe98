"""How late delayed jobs start, alone and with many others pending.

The limit: a bare claim round trip for one due job, measured in another database at the same time.
A machine that stands still for a moment makes late all that is due meanwhile, and one round trip
long. So it is told, too, how late a bare client is that sleeps until the due time and then claims.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from bench.draining import bare_client
from bench.engines.protocol import Bare, Engine
from bench.figures import Better, Figure, Target, percentile
from bench.processes import application, wait_for_finished, warm_workers
from bench.sizes import Size

NAME = "lateness"
LEAD = 1.0
SPACING = 0.0101
"""Seconds between two due times; no multiple of a timer's period."""


@dataclass(frozen=True, slots=True)
class _Late:
    """Milliseconds: how late jobs were, what bare claims took, and how late a bare client was."""

    jobs: list[float]
    claims: list[float]
    bare: list[float]


def measure(engine: Engine, size: Size) -> list[Figure]:
    """Milliseconds between the due time and the first line of the task's code."""
    figures = []
    for others in (0, size.others):
        late = _lateness(engine, size.delayed, others)
        for percent, target in ((50, None), (99, Target(3.0))):
            figures += [
                Figure(
                    NAME,
                    f"{name} with {others:,} others, p{percent}",
                    engine.name,
                    "ms",
                    Better.LOWER,
                    percentile(late.jobs, percent),
                    percentile(limit, percent),
                    bound,
                )
                for name, limit, bound in (
                    ("lateness", late.claims, target),
                    ("beside a bare client's,", late.bare, None),
                )
            ]
    return figures


def _lateness(engine: Engine, jobs: int, others: int) -> _Late:
    with (
        engine.fresh() as database,
        application(database) as app,
        engine.fresh() as other,
        bare_client(other) as bare,
    ):
        if others:
            database.load_pending(others, app.stamp.name)
        with warm_workers(database, app):
            begin = time.time() + LEAD
            dues = [int((begin + number * SPACING) * 1e6) for number in range(jobs)]
            app.app.enqueue_many(
                app.stamp.using(run_at=datetime.fromtimestamp(due / 1e6, UTC)).job(due)
                for due in dues
            )
            claims, punctual = _beside(bare, dues)
            wait_for_finished(database, jobs)
            late = [(started - due) / 1000 for due, started in database.stamps()]
            return _Late(late, claims, punctual)


def _beside(bare: Bare, dues: Sequence[int]) -> tuple[list[float], list[float]]:
    """Halfway between the due times: how long claims take, and how late they are done."""
    claims, late = [], []
    for due in dues:
        bare.insert_one("{}")
        moment = due / 1e6 + SPACING / 2
        if (pause := moment - time.time()) > 0:
            time.sleep(pause)
        begun = time.perf_counter()
        claimed = bare.claim(1)
        claims.append((time.perf_counter() - begun) * 1000)
        late.append((time.time() - moment) * 1000)
        bare.finish(claimed, "0")
    return claims, late
