"""The time of a claim, by the store's own verb, as a worker makes it; and of a bare one."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from datetime import timedelta

from bench.application import Application
from bench.draining import fill
from bench.engines.protocol import Bare
from bench.figures import percentile
from duly.model.identifiers import new_id
from duly.model.query import Demand
from duly.model.settlement import succeed
from duly.model.worker import Worker

CLAIMED = 100
"""Jobs a claim."""

WARMING = 10
"""Claims before those that count: connections open, statements get prepared and planned."""

TURNS = 4


@dataclass(frozen=True, slots=True)
class Compared:
    """Milliseconds of each claim, and jobs a second of the submission of each turn: here, and in
    another database, so that the machine is the same for both. Minutes apart it is not equally
    fast, and now and then its disk takes longer for one sync than usual for a hundred."""

    trips: list[float]
    usual_trips: list[float]
    rates: list[float]
    usual_rates: list[float]

    def growth(self, percent: int) -> float:
        """How many times as long a claim takes."""
        return percentile(self.trips, percent) / percentile(self.usual_trips, percent)


def duly_claims(app: Application, claims: int) -> tuple[list[float], float]:
    """Submit, claim, and settle what was claimed; answers the milliseconds of each claim, and jobs
    a second of the submission."""
    store = app.app.store
    worker = Worker(
        id=new_id(),
        name="bench",
        machine="bench",
        pid=os.getpid(),
        process_started=0,
        queues=(),
        tasks=(app.noop.name,),
        version="0",
    )
    store.run(store.register_worker(worker, timedelta(hours=1)))
    demand = Demand(worker=worker.id, queues=(), tasks=worker.tasks, limit=CLAIMED)
    submission = fill(app, app.noop, (WARMING + claims) * CLAIMED)
    trips = []
    for _ in range(WARMING + claims):
        begun = time.perf_counter()
        jobs = store.run(store.claim(demand))
        trips.append((time.perf_counter() - begun) * 1000)
        store.run(store.settle([succeed(job.id, job.token, None) for job in jobs]))
    store.run(store.reap([worker.id], "the benchmark has ended", expired_only=False))
    return trips[WARMING:], submission


def claims_in_turns(app: Application, usual: Application, claims: int) -> Compared:
    """Claim in one database and another, which is as usual, in turns."""
    compared = Compared([], [], [], [])
    for _ in range(TURNS):
        for each, all_trips, all_rates in (
            (app, compared.trips, compared.rates),
            (usual, compared.usual_trips, compared.usual_rates),
        ):
            trips, rate = duly_claims(each, max(1, claims // TURNS))
            all_trips += trips
            all_rates.append(rate)
    return compared


def bare_claims(bare: Bare, claims: int) -> tuple[list[float], float]:
    """The same of a bare client."""
    begun = time.perf_counter()
    bare.insert("{}" for _ in range((WARMING + claims) * CLAIMED))
    submission = (WARMING + claims) * CLAIMED / (time.perf_counter() - begun)
    trips = []
    for _ in range(WARMING + claims):
        begun = time.perf_counter()
        jobs = bare.claim(CLAIMED)
        trips.append((time.perf_counter() - begun) * 1000)
        bare.finish(jobs, "null")
    return trips[WARMING:], submission
