"""What becomes of a job whose worker is gone."""

from __future__ import annotations

from duly.model.attempt import Failure, Outcome
from duly.model.job import Delivery, JobRecord, State
from duly.model.settlement import Settlement, release
from duly.policy.verdict import REASON_LOST


def after_crash(job: JobRecord, cause: str) -> Settlement:
    """Decide for a running job whose worker died of `cause`.

    A job that had not started goes back as it was. One that started goes back too, to be run
    alone in a process beside its worker: a crash there is its own and is charged by the worker,
    which lives to tell. The death of a worker itself is charged to nobody, also not to those
    that ran in processes beside it. An at-most-once job that started is never run again; but its
    compensations are.
    """
    if job.started_at is None:
        return release(job.id, job.token)
    error = Failure(type="WorkerCrashed", message=cause, fingerprint="WorkerCrashed")
    lost = job.delivery is Delivery.AT_MOST_ONCE and job.undoing is None
    return Settlement(
        job_id=job.id,
        token=job.token,
        outcome=Outcome.LOST if lost else Outcome.CRASHED,
        state=State.DEAD if lost else State.PENDING,
        reason=REASON_LOST if lost else None,
        error=error,
        flow_id=job.flow_id,
        parent_id=job.parent_id,
    )
