"""A flow: jobs that depend on each other, as it is submitted and as it is stored."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

import msgspec

from duly.model.job import Draft, State

MOST_MAPPED = 100_000
"""How many jobs one node may be expanded into."""


class Rule(StrEnum):
    """When a node runs, by what its parents came to."""

    ALL_SUCCEEDED = "all_succeeded"
    ALL_FINISHED = "all_finished"
    ANY_FAILED = "any_failed"
    ANY_SUCCEEDED = "any_succeeded"


class Condition(StrEnum):
    """What one edge asks of its parent."""

    SUCCEEDED = "succeeded"
    FINISHED = "finished"
    FAILED = "failed"


class FailurePolicy(StrEnum):
    """What a flow does when one of its nodes fails."""

    CANCEL = "cancel"
    CONTINUE = "continue"
    PAUSE = "pause"


class FlowState(StrEnum):
    """Where a flow as a whole stands."""

    QUEUED = "queued"
    RUNNING = "running"
    PAUSED = "paused"
    FAILING = "failing"
    CANCELLING = "cancelling"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class NodeKind(StrEnum):
    """A node is one job, or is expanded into one job for each item of a list."""

    JOB = "job"
    MAP = "map"


class NodeState(StrEnum):
    """Where a node stands.

    `held` may run, but its flow is paused or queued; `released` has its job, or jobs, live;
    `stalled` failed in a flow that waits for an operator's word. `cancelled` and `skipped` never
    ran: a parent failed, or what the node is for did not happen.
    """

    BLOCKED = "blocked"
    HELD = "held"
    RELEASED = "released"
    STALLED = "stalled"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"


class Binding(msgspec.Struct, frozen=True):
    """A parameter that gets the result of a node, or the list of the results of several."""

    parameter: str
    nodes: tuple[UUID, ...]
    several: bool = False


class Expansion(msgspec.Struct, frozen=True, kw_only=True):
    """How a map node makes its jobs: from `draft`, each with one item under `parameter`.

    The items are the result of the node `over`, or else `values`, a JSON text.
    """

    draft: Draft
    parameter: str
    over: UUID | None = None
    values: str | None = None


class Edge(msgspec.Struct, frozen=True):
    """The child waits for the parent."""

    parent: UUID
    child: UUID
    condition: Condition = Condition.SUCCEEDED


class FlowNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node as it is stored. The id of a node that is one job is that job's.

    `waits_for` counts parents that have not ended, the three counters those that have, as their
    edges see them; in an expanded map they count its items. `spared` nodes go on when the rest
    of a failed flow is cancelled: they handle failures, or follow one that does. The failure of
    a `tolerated` node is none of the flow. `kept` says that others need its result. An item of
    the map `item_of` has its place there as `position`. `delay` is seconds.
    """

    id: UUID
    flow_id: UUID
    number: int
    name: str
    kind: NodeKind = NodeKind.JOB
    rule: Rule = Rule.ALL_SUCCEEDED
    state: NodeState = NodeState.BLOCKED
    waits_for: int = 0
    succeeded: int = 0
    failed: int = 0
    skipped: int = 0
    spared: bool = False
    tolerated: bool = False
    kept: bool = False
    delay: float | None = None
    bindings: str | None = None
    expansion: str | None = None
    item_of: UUID | None = None
    position: int = 0
    reason: str | None = None


class FlowRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A flow as it is stored, at one moment.

    `total` counts its jobs, the four counters those that have ended; `open` counts nodes that
    have not ended, maps among them, and `failures` nodes whose failure makes the flow fail.
    At most `max_active` flows of its name run at once. `parent_id` is the job that submitted it.
    """

    id: UUID
    name: str
    state: FlowState
    policy: FailurePolicy
    max_active: int | None = None
    total: int = 0
    open: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    skipped: int = 0
    failures: int = 0
    reason: str | None = None
    parent_id: UUID | None = None
    schedule_id: str | None = None
    created_at: datetime
    finished_at: datetime | None = None


class FlowDraft(msgspec.Struct, frozen=True, kw_only=True):
    """A flow as it is submitted: its nodes, the drafts of those that are one job, its edges."""

    id: UUID
    name: str
    policy: FailurePolicy = FailurePolicy.CANCEL
    max_active: int | None = None
    parent_id: UUID | None = None
    schedule_id: str | None = None
    nodes: tuple[FlowNode, ...] = ()
    drafts: tuple[Draft, ...] = ()
    edges: tuple[Edge, ...] = ()


class NodeView(msgspec.Struct, frozen=True):
    """A node as it is shown, with its parents' names; of a map, how many of its items there are,
    have succeeded and have failed."""

    id: UUID
    name: str
    kind: NodeKind
    rule: Rule
    state: NodeState
    parents: tuple[str, ...]
    reason: str | None
    items: int = 0
    items_succeeded: int = 0
    items_failed: int = 0


class Ended(msgspec.Struct, frozen=True):
    """A job of a flow that has come to its end in this transaction."""

    job_id: UUID
    flow_id: UUID
    state: State
    result: str | None = None
    reason: str | None = None


class FlowChange(StrEnum):
    """What a request to cancel, retry or resume a flow came to."""

    DONE = "done"
    NOTHING = "nothing"
    UNKNOWN = "unknown"


def plain(record: FlowRecord) -> dict[str, Any]:
    """The record as JSON-ready values, for people and programs alike."""
    values: dict[str, Any] = msgspec.to_builtins(record)
    return values
