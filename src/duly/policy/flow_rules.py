"""When a node of a flow runs: pure functions of its rule and of what its parents came to."""

from __future__ import annotations

from enum import StrEnum

from duly.model.flow import Condition, FlowNode, FlowState, NodeState, Rule
from duly.model.job import State

ENDED = frozenset({NodeState.SUCCEEDED, NodeState.FAILED, NodeState.CANCELLED, NodeState.SKIPPED})
FAILURES = frozenset({NodeState.FAILED, NodeState.CANCELLED})
FINISHED = frozenset({FlowState.SUCCEEDED, FlowState.FAILED, FlowState.CANCELLED})
HANDLERS = frozenset({Rule.ALL_FINISHED, Rule.ANY_FAILED})
"""Rules of nodes that have something to do when a parent fails."""

END_OF_JOB = {
    State.SUCCEEDED: NodeState.SUCCEEDED,
    State.DEAD: NodeState.FAILED,
    State.CANCELLED: NodeState.CANCELLED,
}


class Decision(StrEnum):
    """What is to become of a node that waits."""

    WAIT = "wait"
    RUN = "run"
    CANCEL = "cancel"
    SKIP = "skip"


class Counted(StrEnum):
    """As what a parent's end counts with its child; the names of the node's counters."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SKIPPED = "skipped"


def counted(condition: Condition, parent: NodeState) -> Counted:
    """As what the end of a parent counts over an edge of this condition."""
    if condition is Condition.FINISHED:
        return Counted.SUCCEEDED
    if condition is Condition.FAILED:
        return Counted.SUCCEEDED if parent in FAILURES else Counted.SKIPPED
    if parent in FAILURES:
        return Counted.FAILED
    return Counted.SUCCEEDED if parent is NodeState.SUCCEEDED else Counted.SKIPPED


def decide(node: FlowNode) -> Decision:
    """Whether a blocked node runs now, waits on, or never runs."""
    over = node.waits_for == 0
    match node.rule:
        case Rule.ALL_SUCCEEDED:
            if node.failed:
                return Decision.CANCEL
            if node.skipped:
                return Decision.SKIP
            return Decision.RUN if over else Decision.WAIT
        case Rule.ALL_FINISHED:
            return Decision.RUN if over else Decision.WAIT
        case Rule.ANY_FAILED:
            if node.failed:
                return Decision.RUN
            return Decision.SKIP if over else Decision.WAIT
        case Rule.ANY_SUCCEEDED:
            if node.succeeded:
                return Decision.RUN
            if not over:
                return Decision.WAIT
            return Decision.CANCEL if node.failed else Decision.SKIP
