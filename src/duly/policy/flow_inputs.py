"""What nodes get from their parents: items of a list to map over, and results as arguments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from uuid import UUID

import msgspec

from duly.errors import InvalidFlow
from duly.model.flow import (
    MOST_MAPPED,
    Binding,
    Expansion,
    FlowNode,
    NodeKind,
    NodeState,
)
from duly.model.identifiers import new_id
from duly.model.job import Draft

StoredResult = tuple[UUID, NodeKind, UUID | None, str | None]
"""Of a node: its id, its kind, the map that it is an item of, its result. Items are in order."""

_LIST = msgspec.json.Decoder(list[msgspec.Raw])


def expanded(
    node: FlowNode, expansion: Expansion, source: str, text: str | None
) -> tuple[list[FlowNode], list[Draft]]:
    """The items of a map over a JSON text, and their jobs; InvalidFlow when it is no list."""
    try:
        values = _LIST.decode(text or "null")
    except msgspec.ValidationError:
        raise InvalidFlow(f"{source} did not return a list to map over") from None
    if len(values) > MOST_MAPPED:
        raise InvalidFlow(
            f"{source} returned {len(values):,} items to map over, at most {MOST_MAPPED:,} can be"
        )
    draft = expansion.draft
    delay = None if node.delay is None else timedelta(seconds=node.delay)
    nodes, drafts = [], []
    for position, value in enumerate(values):
        job_id = new_id()
        nodes.append(
            FlowNode(
                id=job_id,
                flow_id=node.flow_id,
                number=node.number,
                name=f"{node.name}[{position}]",
                state=NodeState.RELEASED,
                spared=node.spared,
                tolerated=node.tolerated,
                kept=node.kept,
                bindings=node.bindings,
                item_of=node.id,
                position=position,
            )
        )
        arguments = with_values(draft.arguments, {expansion.parameter: bytes(value).decode()})
        drafts.append(msgspec.structs.replace(draft, id=job_id, arguments=arguments, delay=delay))
    return nodes, drafts


def with_values(arguments: str, values: Mapping[str, str]) -> str:
    """The arguments, a JSON object, with more under their names, JSON texts too."""
    if not values:
        return arguments
    more = ",".join(f"{msgspec.json.encode(name).decode()}:{text}" for name, text in values.items())
    return f"{{{more}}}" if arguments == "{}" else f"{arguments[:-1]},{more}}}"


def results_by_node(rows: Iterable[StoredResult]) -> dict[UUID, str]:
    """The results as JSON texts; that of a map is the list of its items' results. What has none
    is null."""
    results: dict[UUID, str] = {}
    items: dict[UUID, list[str]] = {}
    for node_id, kind, item_of, result in rows:
        if kind is NodeKind.MAP:
            items.setdefault(node_id, [])
        else:
            results[node_id] = result or "null"
        if item_of is not None:
            items.setdefault(item_of, []).append(result or "null")
    return results | {node_id: f"[{','.join(each)}]" for node_id, each in items.items()}


def bound(bindings: Sequence[Binding], results: Mapping[UUID, str]) -> dict[str, str]:
    """The values of bound parameters, as JSON texts."""
    values = {}
    for binding in bindings:
        texts = [results.get(node, "null") for node in binding.nodes]
        values[binding.parameter] = f"[{','.join(texts)}]" if binding.several else texts[0]
    return values
