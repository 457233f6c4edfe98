"""The checker: a history on one side, twelve invariants on the other, violations as the answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from uuid import UUID

import msgspec

from duly.testing.evidence import Evidence, Finding
from duly.testing.history import History
from duly.testing.invariants import (
    dead_letters,
    dependencies,
    effects,
    limits,
    retries,
    submissions,
    ticks,
    transitions,
)

CHECKS: tuple[Callable[[Evidence], Iterator[Finding]], ...] = (
    submissions.no_loss,
    submissions.no_invention,
    transitions.one_completion,
    transitions.fencing,
    transitions.one_holder,
    effects.effects,
    ticks.ticks,
    retries.retries,
    transitions.legal,
    dead_letters.dead_letters,
    dependencies.dependencies,
    limits.limits,
)
"""I1 to I12, in order."""


class Violation(msgspec.Struct, frozen=True):
    """An invariant that does not hold, for which job, and all that is known of that job."""

    invariant: str
    message: str
    job_id: UUID | None = None
    around: tuple[str, ...] = ()

    def __str__(self) -> str:
        where = "" if self.job_id is None else f" job {self.job_id}:"
        return "\n    ".join([f"{self.invariant}:{where} {self.message}", *self.around])


def check_history(history: History) -> list[Violation]:
    """Every violation of the invariants I1 to I12 that the history shows.

    Of what is not in it, such as the journal of a database that kept none, nothing is asked.
    """
    evidence = Evidence(history)
    return [
        Violation(
            finding.invariant,
            finding.message,
            finding.job_id,
            () if finding.job_id is None else tuple(evidence.around(finding.job_id)),
        )
        for check in CHECKS
        for finding in check(evidence)
    ]
