"""Flows on SQLite: submission, an operator's word, and questions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from duly.model.flow import Binding, FlowChange, FlowDraft, FlowRecord, FlowState, NodeView
from duly.model.identifiers import id_of
from duly.policy.flow_inputs import bound, results_by_node
from duly.store import advancing
from duly.store.operation import Operation, Statement, Steps, Wake
from duly.store.records import node_views
from duly.store.sqlite.flow_tables import FLOW, FLOW_LIST, TABLES, flow_record
from duly.store.sqlite.rows import array, micros

BINDINGS = "SELECT id, bindings FROM flow_nodes WHERE id = ? AND bindings IS NOT NULL"
FLOWS = (
    f"SELECT {FLOW_LIST} FROM flows WHERE (?1 IS NULL OR name = ?1)"
    " AND (?2 IS NULL OR state IN (SELECT value FROM json_each(?2)))"
    " AND (?3 IS NULL OR id < ?3) ORDER BY id DESC LIMIT ?4"
)
VIEW = (
    "SELECT node.id, node.name, node.kind, node.rule, node.state, node.reason,"
    " coalesce(items.total, 0), coalesce(items.succeeded, 0), coalesce(items.failed, 0)"
    " FROM flow_nodes node LEFT JOIN ("
    "  SELECT item_of, count(*) AS total, count(*) FILTER (WHERE state = 'succeeded') AS succeeded,"
    "  count(*) FILTER (WHERE state IN ('failed', 'stalled')) AS failed"
    "  FROM flow_nodes WHERE flow_id = ?1 AND item_of IS NOT NULL GROUP BY item_of"
    " ) items ON items.item_of = node.id"
    " WHERE node.flow_id = ?1 AND node.item_of IS NULL ORDER BY node.number"
)
QUEUED_NAMES = "SELECT DISTINCT name FROM flows WHERE finished_at IS NULL AND state = 'queued'"
OLD = "SELECT id FROM flows WHERE finished_at < ? LIMIT ?"
FORGET = (
    "DELETE FROM flow_edges WHERE parent IN (SELECT id FROM flow_nodes WHERE flow_id = ?)",
    "DELETE FROM flow_nodes WHERE flow_id = ?",
    "DELETE FROM flows WHERE id = ?",
)
_WAKES = frozenset({Wake.WORKERS, Wake.WAITERS, Wake.SCHEDULERS})


def _inputs(job_ids: Sequence[UUID]) -> Steps[dict[UUID, dict[str, str]]]:
    rows = yield Statement(BINDINGS, [(job_id.bytes,) for job_id in job_ids], many=True)
    bindings = {
        id_of(job_id): msgspec.json.decode(text, type=list[Binding]) for job_id, text in rows
    }
    needed = {node for theirs in bindings.values() for binding in theirs for node in binding.nodes}
    if not needed:
        return {}
    results = results_by_node((yield from TABLES.results(sorted(needed))))
    return {job_id: bound(theirs, results) for job_id, theirs in bindings.items()}


def _flow(flow_id: UUID) -> Steps[FlowRecord | None]:
    rows = yield Statement(FLOW, (flow_id.bytes,))
    return flow_record(rows[0]) if rows else None


def _flows(values: Sequence[Any]) -> Steps[list[FlowRecord]]:
    rows = yield Statement(FLOWS, values)
    return [flow_record(row) for row in rows]


def _flow_nodes(flow_id: UUID) -> Steps[list[NodeView]]:
    rows = yield Statement(VIEW, (flow_id.bytes,))
    edges = yield from TABLES.edges_of(flow_id)
    return node_views([(id_of(row[0]), *row[1:]) for row in rows], edges)


def _start_queued(now: datetime | None) -> Steps[int]:
    rows = yield Statement(QUEUED_NAMES)
    names = sorted(row[0] for row in rows)
    return (yield from advancing.start_queued(TABLES, names, now)) if names else 0


def _purge_flows(before: datetime, limit: int) -> Steps[int]:
    rows = yield Statement(OLD, (micros(before), limit))
    for text in FORGET:
        yield Statement(text, rows, many=True)
    return len(rows)


class Flows:
    """The verbs about flows."""

    def submit_flow(
        self, flow: FlowDraft, now: datetime | None = None
    ) -> Operation[tuple[FlowRecord, bool]]:
        return Operation(
            lambda: advancing.submit(TABLES, flow, now), wakes=frozenset({Wake.WORKERS})
        )

    def flow_inputs(self, job_ids: Sequence[UUID]) -> Operation[dict[UUID, dict[str, str]]]:
        return Operation(lambda: _inputs(job_ids), writes=False)

    def cancel_flow(
        self, flow_id: UUID, reason: str | None = None, now: datetime | None = None
    ) -> Operation[FlowChange]:
        return Operation(lambda: advancing.cancel(TABLES, flow_id, reason, now), wakes=_WAKES)

    def retry_flow(self, flow_id: UUID, now: datetime | None = None) -> Operation[FlowChange]:
        return Operation(lambda: advancing.retry(TABLES, flow_id, now), wakes=_WAKES)

    def resume_flow(self, flow_id: UUID, now: datetime | None = None) -> Operation[FlowChange]:
        return Operation(lambda: advancing.resume(TABLES, flow_id, now), wakes=_WAKES)

    def flow(self, flow_id: UUID) -> Operation[FlowRecord | None]:
        return Operation(lambda: _flow(flow_id), writes=False)

    def flows(
        self,
        limit: int,
        name: str | None = None,
        states: frozenset[FlowState] | None = None,
        before: UUID | None = None,
    ) -> Operation[list[FlowRecord]]:
        wanted = None if states is None else array(sorted(state.value for state in states))
        cursor = None if before is None else before.bytes
        return Operation(lambda: _flows((name, wanted, cursor, limit)), writes=False)

    def flow_nodes(self, flow_id: UUID) -> Operation[list[NodeView]]:
        return Operation(lambda: _flow_nodes(flow_id), writes=False)

    def start_queued_flows(self, now: datetime | None = None) -> Operation[int]:
        return Operation(lambda: _start_queued(now), wakes=frozenset({Wake.WORKERS}))

    def purge_flows(self, finished_before: datetime, limit: int) -> Operation[int]:
        return Operation(lambda: _purge_flows(finished_before, limit))
