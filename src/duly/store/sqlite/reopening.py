"""A finished job that is to run again, on SQLite."""

from __future__ import annotations

from duly.model.job import State
from duly.store.operation import Row
from duly.store.sqlite.rows import COLUMN, changed

# Failures that are recorded of steps count in the attempt they are of, and in earlier ones.
FORGIVE_STEPS = "UPDATE steps SET attempt = 0 WHERE job_id = ? AND state = 'failed'"


def reopened(row: Row, state: State, instant: int, arguments: str | None, keeps: bool) -> Row:
    """The row of a finished job in its next generation and with fresh attempts; its steps stay if
    it `keeps` them."""
    return changed(
        row,
        state=state.value,
        run_at=instant,
        arguments=row[COLUMN["arguments"]] if arguments is None else arguments,
        attempt=0,
        crashes=0,
        generation=row[COLUMN["generation"]] + 1,
        alone=0,
        expires_at=None,
        worker=None,
        cancel_requested_at=None,
        started_at=None,
        finished_at=None,
        result=None,
        reason=None,
        stepped=row[COLUMN["stepped"]] if keeps else 0,
        undos=row[COLUMN["undos"]] if keeps else 0,
        undoing=None,
    )
