"""The shape of a flow: no cycles, unique names, and what follows for each node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

import msgspec

from duly.errors import InvalidFlow
from duly.model.flow import Condition, Edge, FlowNode, Rule
from duly.policy.flow_rules import HANDLERS


def arranged(nodes: Sequence[FlowNode], edges: Iterable[Edge]) -> list[FlowNode]:
    """The nodes with what follows from the edges: for how many parents each waits, which are
    spared, whose failure is tolerated. InvalidFlow for a cycle, naming the path."""
    by_id = {node.id: node for node in nodes}
    children: dict[UUID, list[Edge]] = {node.id: [] for node in nodes}
    parents: dict[UUID, list[Edge]] = {node.id: [] for node in nodes}
    for edge in edges:
        children[edge.parent].append(edge)
        parents[edge.child].append(edge)
    _refuse_same_names(nodes)
    spared: set[UUID] = set()
    for node_id in in_order(by_id, children):
        handles = by_id[node_id].rule in HANDLERS or any(
            edge.condition is not Condition.SUCCEEDED for edge in parents[node_id]
        )
        if handles or any(edge.parent in spared for edge in parents[node_id]):
            spared.add(node_id)
    return [
        msgspec.structs.replace(
            node,
            waits_for=len(parents[node.id]),
            spared=node.id in spared,
            tolerated=bool(children[node.id])
            and all(
                by_id[edge.child].rule is Rule.ANY_SUCCEEDED
                and edge.condition is Condition.SUCCEEDED
                for edge in children[node.id]
            ),
        )
        for node in nodes
    ]


def in_order(nodes: Mapping[UUID, FlowNode], children: Mapping[UUID, Sequence[Edge]]) -> list[UUID]:
    """The nodes so that parents come before children; InvalidFlow when there is a cycle."""
    finished: list[UUID] = []
    done: set[UUID] = set()
    for start in nodes:
        if start in done:
            continue
        path = [start]
        on_path = {start}
        waiting = [iter(children[start])]
        while path:
            edge = next(waiting[-1], None)
            if edge is None:
                left = path.pop()
                waiting.pop()
                on_path.discard(left)
                done.add(left)
                finished.append(left)
            elif edge.child in on_path:
                circle = [*path[path.index(edge.child) :], edge.child]
                shown = " >> ".join(nodes[each].name for each in circle)
                raise InvalidFlow(f"a cycle, in which every node waits for itself: {shown}")
            elif edge.child not in done:
                path.append(edge.child)
                on_path.add(edge.child)
                waiting.append(iter(children[edge.child]))
    return finished[::-1]


def _refuse_same_names(nodes: Iterable[FlowNode]) -> None:
    seen: set[str] = set()
    for node in nodes:
        if node.name in seen:
            raise InvalidFlow(
                f"two nodes have the name {node.name!r}: give one of them another, such as "
                f'.named("{node.name}:2")'
            )
        seen.add(node.name)
