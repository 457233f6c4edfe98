"""What a pending job without arguments takes on the disk. The limit: a bare row and its indexes."""

from __future__ import annotations

from bench.draining import bare_client, fill, texts
from bench.engines.protocol import Engine
from bench.figures import Better, Figure, Target
from bench.processes import application
from bench.sizes import Size

NAME = "disk"


def measure(engine: Engine, size: Size) -> list[Figure]:
    """Bytes a job."""
    jobs = size.on_disk
    with engine.fresh() as database, application(database) as app:
        empty = database.live_bytes()
        fill(app, app.noop, jobs)
        duly = (database.live_bytes() - empty) / jobs
    with engine.fresh() as database, bare_client(database) as bare:
        empty = database.live_bytes()
        bare.insert(texts(jobs))
        limit = (database.live_bytes() - empty) / jobs
    most = Target(600.0, of_ratio=False)
    return [Figure(NAME, "pending job", engine.name, "bytes", Better.LOWER, duly, limit, most)]
