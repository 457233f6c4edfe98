"""After kill -9 of a worker process: seconds until the job it ran has started again.

It starts again alone, in a process of its own. The limit: starting a Python process that imports
the tasks.
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

from bench.engines.protocol import Engine
from bench.figures import Better, Figure
from bench.processes import ROOT, application, wait_until, warm_workers
from bench.sizes import Size

NAME = "recovery"
LOOK = 0.02


def measure(engine: Engine, size: Size) -> list[Figure]:
    """The median of some crashes."""
    times = [_recover(engine) for _ in range(size.recoveries)]
    starts = [_start_of_process() for _ in range(3)]
    name = "kill -9 to second start"
    return [
        Figure(
            NAME,
            name,
            engine.name,
            "s",
            Better.LOWER,
            statistics.median(times),
            statistics.median(starts),
        )
    ]


def _recover(engine: Engine) -> float:
    with (
        engine.fresh() as database,
        application(database) as app,
        warm_workers(database, app) as worker,
    ):
        starts = database.folder / "starts"
        app.outlive.enqueue(str(starts))
        wait_until(lambda: len(_lines(starts)) == 1, "the job starts", look=LOOK)
        (child,) = worker.children()
        killed = time.time()
        os.kill(child.pid, signal.SIGKILL)
        wait_until(lambda: len(_lines(starts)) == 2, "the job starts again", look=LOOK)
        return int(_lines(starts)[1]) / 1e6 - killed


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def _start_of_process() -> float:
    begun = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import bench.application"], cwd=ROOT, check=True)
    return time.perf_counter() - begun
