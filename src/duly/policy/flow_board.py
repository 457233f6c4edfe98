"""How the end of some nodes changes the rest of their flows.

A board holds the part of the flows that has been read, and what is to be written. It reads and
writes nothing itself: `duly.store.advancing` brings it the edges and nodes it asks for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from duly.model.flow import (
    Condition,
    Edge,
    FailurePolicy,
    FlowNode,
    FlowRecord,
    FlowState,
    NodeKind,
    NodeState,
)
from duly.policy.flow_rules import (
    ENDED,
    FAILURES,
    FINISHED,
    Decision,
    counted,
    decide,
)

WITHHOLDING = frozenset({FlowState.QUEUED, FlowState.PAUSED})
STOPPING = frozenset({FlowState.FAILING, FlowState.CANCELLING})
NOT_NEEDED = "skipped: its rule {rule} was not met"


class Board:
    """Flows, some of their nodes, and what becomes of them."""

    def __init__(self, flows: Iterable[FlowRecord]) -> None:
        self.flows = {flow.id: flow for flow in flows}
        self.nodes: dict[UUID, FlowNode] = {}
        self.results: dict[UUID, str] = {}
        """Results to be kept, of nodes that have just ended."""
        self._changed: dict[UUID, None] = {}
        self._ended: dict[UUID, str] = {}
        self._failing: set[UUID] = set()
        self._released: list[UUID] = []
        self._expanding: list[UUID] = []
        self._cancelled: dict[str, list[UUID]] = {}

    def add(self, nodes: Iterable[FlowNode]) -> None:
        """Take in nodes that have been read; those that are here already stay as they are."""
        for node in nodes:
            self.nodes.setdefault(node.id, node)

    def unknown(self, ids: Iterable[UUID]) -> list[UUID]:
        """Those that have not been read."""
        return [each for each in dict.fromkeys(ids) if each not in self.nodes]

    def change_flow(self, flow_id: UUID, **values: Any) -> None:
        """Change a flow."""
        self.flows[flow_id] = msgspec.structs.replace(self.flows[flow_id], **values)

    def end(
        self,
        node_id: UUID,
        outcome: NodeState,
        result: str | None = None,
        reason: str | None = None,
        cause: str | None = None,
    ) -> None:
        """A node has come to its end; in a flow that pauses, a failure only stalls it.

        `cause` names the node that is to blame when this one never ran.
        """
        node = self.nodes[node_id]
        if node.state in ENDED:
            return
        flow = self.flows[node.flow_id]
        counts = outcome in FAILURES and not node.tolerated
        if (
            counts
            and flow.policy is FailurePolicy.PAUSE
            and flow.state in (FlowState.RUNNING, FlowState.PAUSED)
        ):
            self._put(node, state=NodeState.STALLED, reason=reason)
            self.change_flow(flow.id, state=FlowState.PAUSED, reason=f"{node.name} failed")
            return
        self._put(node, state=outcome, reason=reason)
        if result is not None and node.kept:
            self.results[node.id] = result
        changes: dict[str, Any] = {"open": flow.open - 1}
        if node.kind is NodeKind.JOB:
            changes[outcome.value] = getattr(flow, outcome.value) + 1
        if counts:
            changes["failures"] = flow.failures + 1
            if flow.policy is FailurePolicy.CANCEL and flow.state is FlowState.RUNNING:
                changes |= {"state": FlowState.FAILING, "reason": f"{node.name} failed"}
                self._failing.add(flow.id)
        self.change_flow(flow.id, **changes)
        self._ended[node.id] = cause or node.name

    def take_ended(self) -> dict[UUID, str]:
        """Nodes that have ended and whose edges are to be applied, each with who is to blame."""
        ended, self._ended = self._ended, {}
        return ended

    def take_failing(self) -> set[UUID]:
        """Flows whose rest is to be cancelled."""
        failing, self._failing = self._failing, set()
        return failing

    def take_released(self) -> list[UUID]:
        """Nodes whose blocked jobs are to become pending."""
        released, self._released = self._released, []
        return released

    def take_expanding(self) -> list[UUID]:
        """Map nodes whose jobs are to be made."""
        expanding, self._expanding = self._expanding, []
        return expanding

    def take_cancelled(self) -> dict[str, list[UUID]]:
        """Blocked jobs that never run, by the reason."""
        cancelled, self._cancelled = self._cancelled, {}
        return cancelled

    def take_changed(self) -> list[FlowNode]:
        """Nodes that are not as they were read."""
        changed, self._changed = self._changed, {}
        return [self.nodes[node_id] for node_id in changed]

    def apply(self, edges: Sequence[Edge], blamed: dict[UUID, str]) -> None:
        """Tell the children of nodes that have ended, and maps of their items; all of them are
        here. Each edge is applied once."""
        told: dict[UUID, str] = {}
        for edge in edges:
            child = self.nodes[edge.child]
            if child.state in (NodeState.BLOCKED, NodeState.HELD):
                parent = self.nodes[edge.parent]
                self._count(child, edge.condition, parent.state)
                told.setdefault(child.id, blamed[parent.id])
                if parent.state in FAILURES:
                    told[child.id] = blamed[parent.id]
        for child_id, cause in told.items():
            self.reconsider(child_id, cause)
        maps: dict[UUID, None] = {}
        for item_id in blamed:
            item = self.nodes[item_id]
            if item.item_of is not None:
                self._count(self.nodes[item.item_of], Condition.SUCCEEDED, item.state)
                maps[item.item_of] = None
        for map_id in maps:
            self._end_of_items(map_id)

    def reconsider(self, node_id: UUID, cause: str) -> None:
        """Decide on a node that waits anew, after a change of its counters."""
        node = self.nodes[node_id]
        if node.kind is NodeKind.MAP and node.state is NodeState.RELEASED:
            self._end_of_items(node_id)
        if node.state is not NodeState.BLOCKED:
            return
        match decide(node):
            case Decision.RUN:
                self.release(node_id)
            case Decision.CANCEL:
                self._never(node, NodeState.CANCELLED, f"{cause} failed", cause)
            case Decision.SKIP:
                self._never(node, NodeState.SKIPPED, NOT_NEEDED.format(rule=node.rule), cause)
            case Decision.WAIT:
                pass

    def release(self, node_id: UUID) -> None:
        """Let a node run, or hold it until its flow goes on."""
        node = self.nodes[node_id]
        if self.flows[node.flow_id].state in WITHHOLDING:
            self._put(node, state=NodeState.HELD)
            return
        self._put(node, state=NodeState.RELEASED, reason=None)
        (self._released if node.kind is NodeKind.JOB else self._expanding).append(node_id)

    def expand(self, node_id: UUID, items: int) -> None:
        """A map has got its jobs; without any it is done."""
        node = self.nodes[node_id]
        flow = self.flows[node.flow_id]
        self._put(node, waits_for=items, succeeded=0, failed=0, skipped=0)
        self.change_flow(flow.id, total=flow.total + items, open=flow.open + items)
        if items == 0:
            self.end(node_id, NodeState.SUCCEEDED)

    def cancel_rest(self, flow_id: UUID, nodes: Iterable[FlowNode]) -> list[UUID]:
        """Cancel nodes of a flow; answers the jobs to be cancelled. A map that has its jobs ends
        with them."""
        jobs = []
        for given in nodes:
            node = self.nodes[given.id]
            if node.flow_id != flow_id or node.state in ENDED:
                continue
            if node.state is NodeState.STALLED:
                self.end(node.id, NodeState.FAILED, reason=node.reason)
            elif node.kind is NodeKind.JOB:
                jobs.append(node.id)
            elif node.state is not NodeState.RELEASED:
                self.end(node.id, NodeState.CANCELLED, reason=self.flows[flow_id].reason)
        return jobs

    def finish(self, now: datetime) -> list[FlowRecord]:
        """End the flows that have no open node; answers those that end by this."""
        finished = []
        for flow in list(self.flows.values()):
            if flow.open == 0 and flow.state not in FINISHED:
                state = FlowState.FAILED if flow.failures else FlowState.SUCCEEDED
                if flow.state is FlowState.CANCELLING:
                    state = FlowState.CANCELLED
                self.change_flow(flow.id, state=state, finished_at=now)
                finished.append(self.flows[flow.id])
        return finished

    def _never(self, node: FlowNode, outcome: NodeState, reason: str, cause: str) -> None:
        """End a node that was not released and has nothing to wait for any more."""
        if node.kind is NodeKind.JOB:
            self._cancelled.setdefault(reason, []).append(node.id)
        self.end(node.id, outcome, reason=reason, cause=cause)

    def _end_of_items(self, map_id: UUID) -> None:
        node = self.nodes[map_id]
        if node.waits_for or node.state is not NodeState.RELEASED:
            return
        outcome = NodeState.SUCCEEDED
        if node.failed:
            stopping = self.flows[node.flow_id].state in STOPPING
            outcome = NodeState.CANCELLED if stopping else NodeState.FAILED
        failed = f"{node.failed} of {node.failed + node.succeeded} items failed"
        self.end(map_id, outcome, reason=failed if node.failed else None)

    def _count(self, child: FlowNode, condition: Condition, parent: NodeState) -> None:
        counter = counted(condition, parent).value
        grown = {counter: getattr(child, counter) + 1, "waits_for": child.waits_for - 1}
        self._put(child, **grown)

    def _put(self, node: FlowNode, **values: Any) -> None:
        self.nodes[node.id] = msgspec.structs.replace(node, **values)
        self._changed[node.id] = None
