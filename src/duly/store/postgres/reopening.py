"""A finished job that is to run again, on PostgreSQL."""

from __future__ import annotations

from duly.model.job import State
from duly.store.postgres.rows import columns

# Failures that are recorded of steps count in the attempt they are of, and in earlier ones.
FORGIVE_STEPS = """
UPDATE {schema}.steps SET attempt = 0 WHERE job_id = ANY(%(jobs)s::uuid[]) AND state = 'failed'
"""


def reopened(state: State, instant: str, keeps: str) -> str:
    """The columns of `raised`, a relation of finished jobs, in their next generation and with
    fresh attempts; their steps stay where the condition `keeps` holds."""
    return columns(
        "raised",
        state=f"'{state}'",
        run_at=instant,
        arguments="coalesce(%(arguments)s::text, raised.arguments)",
        attempt="0",
        crashes="0",
        generation="raised.generation + 1",
        alone="false",
        expires_at="NULL",
        worker="NULL",
        cancel_requested_at="NULL",
        started_at="NULL",
        finished_at="NULL",
        result="NULL",
        reason="NULL",
        stepped=f"raised.stepped AND {keeps}",
        undos=f"CASE WHEN {keeps} THEN raised.undos ELSE 0 END",
        undoing="NULL",
    )
