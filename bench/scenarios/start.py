"""What `import duly` costs a new process, in processor time, which others on the machine disturb
least. The limit: the import of the engine's driver."""

from __future__ import annotations

import resource
import subprocess
import sys

from bench.engines.protocol import Engine
from bench.figures import Better, Figure, Target
from bench.processes import ROOT
from bench.sizes import Size

NAME = "start"
DRIVERS = {"sqlite": "apsw", "postgresql": "psycopg"}
MOST = Target(100.0, of_ratio=False)


def measure(engine: Engine, size: Size) -> list[Figure]:
    """Milliseconds beyond those of an empty process, the least of some tries."""
    programs = ("pass", "import duly", f"import {DRIVERS[engine.name]}")
    empty, duly, driver = (min(_cost(each) for _ in range(size.starts)) for each in programs)
    limit = driver - empty if driver > empty else None
    cost = max(duly - empty, 0.0)
    return [Figure(NAME, "import duly", engine.name, "ms", Better.LOWER, cost, limit, MOST)]


def _cost(program: str) -> float:
    before = _children()
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)
    return (_children() - before) * 1000


def _children() -> float:
    """Seconds of processor time of the processes that this one has waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
