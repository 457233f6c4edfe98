"""Running the failed part of a flow again: which nodes wait anew, and for what."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec

from duly.model.flow import (
    Condition,
    Edge,
    Expansion,
    FlowNode,
    FlowRecord,
    FlowState,
    NodeKind,
    NodeState,
)
from duly.policy.flow_rules import ENDED, FAILURES, counted

_AGAIN = frozenset({NodeState.CANCELLED, NodeState.SKIPPED})


class Reopening(msgspec.Struct, frozen=True):
    """What a retry comes to: the flow and the nodes that change, all of them waiting anew, jobs
    to be brought back, and items that are dropped because their list is made anew."""

    flow: FlowRecord
    nodes: tuple[FlowNode, ...]
    jobs: tuple[UUID, ...]
    dropped: tuple[UUID, ...]


def reopened(
    flow: FlowRecord,
    nodes: Mapping[UUID, FlowNode],
    edges: Sequence[Edge],
    chosen: Collection[UUID] | None = None,
) -> Reopening | None:
    """Let failed nodes run again: the chosen ones, or all whose failure the flow minds.

    What was cancelled or skipped because of a failure waits again, and so does what handled the
    failure and what followed that. None when there is nothing to run again, or not yet: what
    handles the failure is under way, and would have to run again after what it is about.
    """
    again = _roots(nodes, edges, chosen)
    if not again:
        return None
    again |= {node.id for node in nodes.values() if node.state in _AGAIN}
    _spread(again, nodes, edges)
    if _is_being_handled(again, nodes, edges):
        return None
    if chosen is None:
        again |= {
            node.id
            for node in nodes.values()
            if node.item_of in again and node.state is NodeState.FAILED
        }
    dropped = _outdated_items(again, nodes)
    again -= dropped
    kept = {node_id: node for node_id, node in nodes.items() if node_id not in dropped}
    changed = _waiting_anew(again, kept, edges, dropped)
    jobs = [node.id for node in changed if node.kind is NodeKind.JOB and node.id in again]
    after = {**kept, **{node.id: node for node in changed}}
    return Reopening(_recounted(flow, after), tuple(changed), tuple(jobs), tuple(dropped))


def _roots(
    nodes: Mapping[UUID, FlowNode], edges: Sequence[Edge], chosen: Collection[UUID] | None
) -> set[UUID]:
    failed = {
        node.id for node in nodes.values() if node.state in (NodeState.FAILED, NodeState.STALLED)
    }
    if chosen is not None:
        return failed & set(chosen)
    roots = {each for each in failed if not nodes[each].tolerated}
    # A failure that was no matter is one when nothing else succeeded in its place.
    roots |= {
        edge.parent
        for edge in edges
        if edge.parent in failed and nodes[edge.child].state in FAILURES
    }
    if not roots:
        roots = {node.id for node in nodes.values() if node.state is NodeState.CANCELLED}
    return roots


def _spread(again: set[UUID], nodes: Mapping[UUID, FlowNode], edges: Sequence[Edge]) -> None:
    """Add what depends on the nodes that run again and has to be decided anew."""
    children: dict[UUID, list[UUID]] = {}
    for edge in edges:
        children.setdefault(edge.parent, []).append(edge.child)
    waiting = list(again)
    while waiting:
        node = nodes[waiting.pop()]
        related = [*children.get(node.id, ()), *([node.item_of] if node.item_of else ())]
        for each in related:
            other = nodes[each]
            anew = other.state is not NodeState.SUCCEEDED or other.spared
            if each not in again and other.state in ENDED and anew:
                again.add(each)
                waiting.append(each)


def _is_being_handled(
    again: set[UUID], nodes: Mapping[UUID, FlowNode], edges: Sequence[Edge]
) -> bool:
    children = (nodes[edge.child] for edge in edges if edge.parent in again)
    return any(child.spared and child.state is NodeState.RELEASED for child in children)


def _outdated_items(again: set[UUID], nodes: Mapping[UUID, FlowNode]) -> set[UUID]:
    """Items of maps whose list is made anew."""
    outdated = set()
    for node_id in again:
        node = nodes[node_id]
        if node.kind is NodeKind.MAP and node.expansion is not None:
            over = msgspec.json.decode(node.expansion, type=Expansion).over
            if over in again:
                outdated.add(node_id)
    return {node.id for node in nodes.values() if node.item_of in outdated}


def _waiting_anew(
    again: set[UUID],
    nodes: Mapping[UUID, FlowNode],
    edges: Sequence[Edge],
    dropped: Collection[UUID],
) -> list[FlowNode]:
    incoming: dict[UUID, list[tuple[UUID, Condition]]] = {}
    for edge in edges:
        if edge.parent not in dropped:
            incoming.setdefault(edge.child, []).append((edge.parent, edge.condition))
    items: dict[UUID, list[tuple[UUID, Condition]]] = {}
    for node in nodes.values():
        if node.item_of is not None:
            items.setdefault(node.item_of, []).append((node.id, Condition.SUCCEEDED))
    changed = []
    for node in nodes.values():
        if node.id not in again and node.state is not NodeState.BLOCKED:
            continue
        expanded = node.id in items
        values: dict[str, Any] = {
            "waits_for": 0,
            "succeeded": 0,
            "failed": 0,
            "skipped": 0,
            "state": NodeState.RELEASED if expanded else NodeState.BLOCKED,
            "reason": None,
        }
        for parent_id, condition in items[node.id] if expanded else incoming.get(node.id, ()):
            parent = nodes[parent_id]
            ended = parent.state in ENDED and parent_id not in again
            counter = counted(condition, parent.state).value if ended else "waits_for"
            values[counter] += 1
        changed.append(msgspec.structs.replace(node, **values))
    return changed


def _recounted(flow: FlowRecord, nodes: Mapping[UUID, FlowNode]) -> FlowRecord:
    jobs = [node for node in nodes.values() if node.kind is NodeKind.JOB]
    stalled = any(node.state is NodeState.STALLED for node in nodes.values())
    return msgspec.structs.replace(
        flow,
        state=FlowState.PAUSED if stalled else FlowState.RUNNING,
        reason=flow.reason if stalled else None,
        finished_at=None,
        total=len(jobs),
        open=sum(node.state not in ENDED for node in nodes.values()),
        failures=sum(node.state in FAILURES and not node.tolerated for node in nodes.values()),
        **{
            state.value: sum(node.state is state for node in jobs)
            for state in (
                NodeState.SUCCEEDED,
                NodeState.FAILED,
                NodeState.CANCELLED,
                NodeState.SKIPPED,
            )
        },
    )
