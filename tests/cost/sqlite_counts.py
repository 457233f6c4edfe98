"""What SQLite counts: statements, steps of its virtual machine, bytes appended to its log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from tests.cost.bounds import Cost
from tests.cost.lives import Lives


class Counter:
    """Sees every statement of every connection that is opened while it counts."""

    def __init__(self, path: Path) -> None:
        self._log = path.with_name(f"{path.name}-wal")
        self.statements = 0
        self.steps = 0

    def watch(self, connection: apsw.Connection) -> None:
        """Count what this connection does; its log is not taken away under the count."""
        connection.wal_autocheckpoint(0)
        connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, self._count)

    @property
    def log_bytes(self) -> int:
        """The length of the log."""
        return self._log.stat().st_size if self._log.exists() else 0

    def _count(self, event: dict[str, Any]) -> None:
        self.statements += 1
        self.steps += event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]


@contextmanager
def counting(path: Path) -> Iterator[Counter]:
    """Count on the file for as long as the block lasts; open the store inside it."""
    counter = Counter(path)
    apsw.connection_hooks.append(counter.watch)
    try:
        yield counter
    finally:
        apsw.connection_hooks.remove(counter.watch)


def phase_costs(lives: Lives, counter: Counter) -> dict[str, Cost]:
    """What each phase costs a job."""
    costs: dict[str, Cost] = {}
    for name, jobs, act in lives.phases():
        before = (counter.statements, counter.steps, counter.log_bytes)
        act()
        after = (counter.statements, counter.steps, counter.log_bytes)
        units = ("statements", "steps", "log bytes")
        costs[name] = {
            unit: (late - early) / jobs
            for unit, early, late in zip(units, before, after, strict=True)
        }
    return costs
