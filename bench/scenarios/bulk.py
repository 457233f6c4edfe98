"""Submission in bulk: `enqueue_many`. The limit is a bare COPY or executemany of the same jobs,
in transactions of the same size, in turns: each takes a fraction of a second, and a disk is not
equally fast from one to the next."""

from __future__ import annotations

import time

from bench.draining import bare_client, fill, texts
from bench.engines.protocol import Engine
from bench.figures import Better, Figure, Target
from bench.processes import application
from bench.sizes import Size
from duly.client.client import BATCH

NAME = "bulk"
TURNS = 4


def measure(engine: Engine, size: Size) -> list[Figure]:
    """Jobs a second; preparing and checking each job is part of it."""
    jobs = size.in_bulk
    taken, taken_bare = 0.0, 0.0
    with (
        engine.fresh() as database,
        application(database) as app,
        engine.fresh() as other,
        bare_client(other) as bare,
    ):
        app.noop.enqueue()
        bare.insert_one("{}")
        for _ in range(TURNS):
            taken += jobs / fill(app, app.noop, jobs)
            begun = time.perf_counter()
            for start in range(0, jobs, BATCH):
                bare.insert(texts(min(BATCH, jobs - start)))
            taken_bare += time.perf_counter() - begun
    duly, limit = TURNS * jobs / taken, TURNS * jobs / taken_bare
    name = f"enqueue_many of {jobs:,}"
    return [Figure(NAME, name, engine.name, "jobs/s", Better.HIGHER, duly, limit, Target(0.7))]
