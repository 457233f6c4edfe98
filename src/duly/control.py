"""What a task may raise to say how its attempt ends, and what is raised in it."""

from __future__ import annotations

from duly.policy.duration import Duration
from duly.policy.duration import parse as parse_duration


class Retry(Exception):
    """Raised by a task: this attempt failed, try again after `after` (else by its policy)."""

    def __init__(
        self, message: str = "the task asked to be retried", *, after: Duration | None = None
    ):
        self.after = None if after is None else parse_duration(after, "after")
        super().__init__(message)


class Snooze(Exception):
    """Raised by a task: not now; run this job again after `delay`, without a charge."""

    def __init__(self, delay: Duration):
        self.delay = parse_duration(delay, "delay")
        super().__init__(f"snoozed for {self.delay}")


class Cancel(Exception):
    """Raised by a task: this job need not be done; it is cancelled for `reason`."""

    def __init__(self, reason: str = "cancelled by its task"):
        self.reason = reason
        super().__init__(reason)


class TimeLimitExceeded(Exception):
    """Raised in a task that runs for longer than its time limit."""

    def __init__(self, message: str = "the attempt ran for longer than its time limit"):
        super().__init__(message)
