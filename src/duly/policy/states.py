"""The table of legal transitions: the one place that says how a job may change its state.

Stores build their statements from it, docs/states.md is checked against it, and so is every
journal.
"""

from __future__ import annotations

from enum import StrEnum

from duly.model.attempt import Outcome
from duly.model.job import State


class Change(StrEnum):
    """What can happen to a job."""

    CLAIM = "claim"
    SUCCEED = "succeed"
    RETRY = "retry"
    RELEASE = "release"
    BURY = "bury"
    CANCEL = "cancel"
    REAP = "reap"
    LOSE = "lose"
    SUSPEND = "suspend"
    WAKE = "wake"
    UNBLOCK = "unblock"
    REPLAY = "replay"
    REOPEN = "reopen"
    RESCHEDULE = "reschedule"


TRANSITIONS: dict[Change, tuple[frozenset[State], State]] = {
    Change.CLAIM: (frozenset({State.PENDING, State.WAITING}), State.RUNNING),
    Change.SUCCEED: (frozenset({State.RUNNING}), State.SUCCEEDED),
    Change.RETRY: (frozenset({State.RUNNING}), State.PENDING),
    Change.RELEASE: (frozenset({State.RUNNING}), State.PENDING),
    Change.BURY: (frozenset({State.RUNNING, State.BLOCKED}), State.DEAD),
    Change.CANCEL: (
        frozenset({State.PENDING, State.BLOCKED, State.WAITING, State.RUNNING}),
        State.CANCELLED,
    ),
    Change.REAP: (frozenset({State.RUNNING}), State.PENDING),
    Change.LOSE: (frozenset({State.RUNNING}), State.DEAD),
    Change.SUSPEND: (frozenset({State.RUNNING}), State.WAITING),
    Change.WAKE: (frozenset({State.WAITING}), State.PENDING),
    Change.UNBLOCK: (frozenset({State.BLOCKED}), State.PENDING),
    Change.REPLAY: (frozenset({State.DEAD}), State.PENDING),
    Change.REOPEN: (frozenset({State.SUCCEEDED, State.DEAD, State.CANCELLED}), State.BLOCKED),
    Change.RESCHEDULE: (frozenset({State.PENDING}), State.PENDING),
}

LIVE = frozenset({State.PENDING, State.BLOCKED, State.RUNNING, State.WAITING})
FINAL = frozenset(State) - LIVE
CANCELLED_AT_ONCE = TRANSITIONS[Change.CANCEL][0] - {State.RUNNING}

# What a claim takes once its time has come: a suspended job needs nobody to wake it by time.
CLAIMABLE = TRANSITIONS[Change.CLAIM][0]

# Outcomes that count against a job's attempts. Crashes have a budget of their own; a release, a
# snooze, a suspension and a cancellation are not the job's fault.
CHARGED = frozenset({Outcome.SUCCEEDED, Outcome.FAILED, Outcome.TIMED_OUT, Outcome.LOST})


def undoes_first(target: State, undos: int, undoing: object) -> bool:
    """Whether a job's compensations have to run before it may end so."""
    return target in (State.DEAD, State.CANCELLED) and undos > 0 and undoing is None


def is_legal(before: State, after: State) -> bool:
    """Whether some change leads from `before` to `after`."""
    return any(before in sources and after is target for sources, target in TRANSITIONS.values())
