"""What a worker's log says about the ends of attempts."""

from __future__ import annotations

import logging

from duly.model.attempt import Failure
from duly.model.job import JobRecord, State
from duly.model.settlement import Settlement
from duly.runtime.logs import about

logger = logging.getLogger("duly.worker")


def log_failure(job: JobRecord, outcome: Settlement, error: Failure) -> None:
    """Tell failures and deaths; what succeeds is not told, for there is too much of it."""
    dead = outcome.state is State.DEAD
    logger.log(
        logging.ERROR if dead else logging.WARNING,
        "attempt %d of %d %s: %s: %s; %s",
        job.attempt,
        job.max_attempts,
        outcome.outcome.value,
        error.type,
        error.message,
        f"the job is dead ({outcome.reason})"
        if dead
        else f"the next follows in {outcome.delay.total_seconds():.1f} s",
        extra=about(job.id, job.task, job.attempt),
    )
