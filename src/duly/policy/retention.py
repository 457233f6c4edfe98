"""How long finished jobs are kept, and what that means for each queue."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

import msgspec

from duly.model.job import State

KEPT = (State.SUCCEEDED, State.CANCELLED, State.DEAD)
DAY = timedelta(days=1)


class Keep(msgspec.Struct, frozen=True):
    """How long, and how many, of one state are kept."""

    age: timedelta
    most: int | None = None


class RetentionPolicy(msgspec.Struct, frozen=True):
    """What is kept of jobs in each state, what other queues do instead, and of events."""

    default: Mapping[State, Keep]
    queues: Mapping[str, Mapping[State, Keep]] = msgspec.field(default_factory=dict)
    events: timedelta = timedelta(days=30)

    def keep(self, state: State, queue: str | None) -> Keep:
        """What holds for this state in this queue."""
        special = self.queues.get(queue or "", {})
        return special.get(state, self.default[state])

    def longest_archived(self) -> timedelta:
        """How long the archive as a whole must reach back."""
        every = [self.default, *self.queues.values()]
        return max(
            each[state].age
            for each in every
            for state in (State.SUCCEEDED, State.CANCELLED)
            if state in each
        )


class Purge(msgspec.Struct, frozen=True):
    """One thing to forget: jobs of a state that finished before a moment, or beyond a number."""

    state: State
    queue: str | None
    before: datetime
    most: int | None


def purges(
    policy: RetentionPolicy, queues: Iterable[str], now: datetime, whole_days: bool
) -> list[Purge]:
    """What is to be forgotten at `now`.

    With `whole_days` the archive drops its oldest days as a whole; only what must go at least a
    day earlier than that is forgotten one by one.
    """
    scopes: list[str | None] = [*sorted(set(queues))] if policy.queues else [None]
    dropped = policy.longest_archived()
    found = []
    for state in KEPT:
        for queue in scopes:
            keep = policy.keep(state, queue)
            by_day = whole_days and state is not State.DEAD and keep.age > dropped - DAY
            if not by_day or keep.most is not None:
                before = now - (dropped + DAY if by_day else keep.age)
                found.append(Purge(state, queue, before, keep.most))
    return found
