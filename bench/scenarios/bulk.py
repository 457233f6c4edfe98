"""Submission in bulk: `enqueue_many`. The limit is a bare COPY or executemany of the same jobs,
in transactions of the same size."""

from __future__ import annotations

import time

from bench.draining import bare_client, fill, texts
from bench.engines.protocol import Engine
from bench.figures import Better, Figure, Target
from bench.processes import application
from bench.sizes import Size
from duly.client.client import BATCH

NAME = "bulk"


def measure(engine: Engine, size: Size) -> list[Figure]:
    """Jobs a second; preparing and checking each job is part of it."""
    jobs = size.in_bulk
    with engine.fresh() as database, application(database) as app:
        app.noop.enqueue()
        duly = fill(app, app.noop, jobs)
    with engine.fresh() as database, bare_client(database) as bare:
        bare.insert_one("{}")
        begun = time.perf_counter()
        for start in range(0, jobs, BATCH):
            bare.insert(texts(min(BATCH, jobs - start)))
        limit = jobs / (time.perf_counter() - begun)
    name = f"enqueue_many of {jobs:,}"
    return [Figure(NAME, name, engine.name, "jobs/s", Better.HIGHER, duly, limit, Target(0.7))]
