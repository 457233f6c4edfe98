"""What becomes of a job whose worker is gone."""

from __future__ import annotations

from duly.model.attempt import Failure, Outcome
from duly.model.job import Delivery, JobRecord, State
from duly.model.settlement import Settlement, release


def after_crash(job: JobRecord, cause: str) -> Settlement:
    """Decide for a running job whose worker died of `cause`.

    A job that had not started goes back as it was. One that started goes back too, to be run
    alone in a process of its own, where the next crash is certainly its doing: only there is it
    charged, and after `max_crashes` of these it is dead. An at-most-once job that started is
    never run again.
    """
    if job.started_at is None:
        return release(job.id, job.token)
    error = Failure(type="WorkerCrashed", message=cause, fingerprint="WorkerCrashed")
    if job.delivery is Delivery.AT_MOST_ONCE:
        return Settlement(
            job_id=job.id,
            token=job.token,
            outcome=Outcome.LOST,
            state=State.DEAD,
            reason="lost",
            error=error,
        )
    exhausted = job.alone and job.crashes + 1 >= job.max_crashes
    return Settlement(
        job_id=job.id,
        token=job.token,
        outcome=Outcome.CRASHED,
        state=State.DEAD if exhausted else State.PENDING,
        reason="crashed" if exhausted else None,
        error=error,
        crashed_alone=job.alone,
    )
