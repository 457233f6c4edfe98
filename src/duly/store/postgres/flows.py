"""Flows on PostgreSQL: submission, an operator's word, and questions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from duly.model.flow import (
    Binding,
    FlowChange,
    FlowDraft,
    FlowRecord,
    FlowState,
    NodeView,
)
from duly.policy.flow_inputs import bound, results_by_node
from duly.store import advancing
from duly.store.operation import Operation, Statement, Steps, Wake
from duly.store.postgres.flow_tables import FLOW_LIST, flow_record
from duly.store.postgres.rows import texts
from duly.store.postgres.schedules import Schedules
from duly.store.records import node_views

BINDINGS = """
SELECT id, bindings FROM {schema}.flow_nodes
WHERE id = ANY(%(ids)s::uuid[]) AND bindings IS NOT NULL
"""
FLOW = f"SELECT {FLOW_LIST} FROM {{schema}}.flows WHERE id = %(flow)s"
FLOWS = f"""
SELECT {FLOW_LIST} FROM {{schema}}.flows
WHERE (%(name)s::text IS NULL OR name = %(name)s::text)
AND (%(states)s::text[] IS NULL OR state = ANY(%(states)s::text[]))
AND (%(before)s::uuid IS NULL OR id < %(before)s::uuid)
ORDER BY id DESC LIMIT %(limit)s
"""
VIEW = """
SELECT node.id, node.name, node.kind, node.rule, node.state,
    node.reason, coalesce(items.total, 0), coalesce(items.succeeded, 0), coalesce(items.failed, 0)
FROM {schema}.flow_nodes node LEFT JOIN (
    SELECT item_of, count(*) AS total, count(*) FILTER (WHERE state = 'succeeded') AS succeeded,
        count(*) FILTER (WHERE state IN ('failed', 'stalled')) AS failed
    FROM {schema}.flow_nodes WHERE flow_id = %(flow)s AND item_of IS NOT NULL GROUP BY item_of
) items ON items.item_of = node.id
WHERE node.flow_id = %(flow)s AND node.item_of IS NULL ORDER BY node.number
"""
QUEUED_NAMES = """
SELECT DISTINCT name FROM {schema}.flows WHERE finished_at IS NULL AND state = 'queued'
"""
PURGE = """
WITH old AS MATERIALIZED (
    SELECT id FROM {schema}.flows WHERE finished_at < %(before)s LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
),
nodes AS (
    DELETE FROM {schema}.flow_nodes USING old WHERE flow_nodes.flow_id = old.id
    RETURNING flow_nodes.id
),
edges AS (DELETE FROM {schema}.flow_edges USING nodes WHERE flow_edges.parent = nodes.id)
DELETE FROM {schema}.flows USING old WHERE flows.id = old.id RETURNING flows.id
"""
_WAKES = frozenset({Wake.WORKERS, Wake.WAITERS, Wake.SCHEDULERS})


class Flows(Schedules):
    """The verbs about flows."""

    def submit_flow(
        self, flow: FlowDraft, now: datetime | None = None
    ) -> Operation[tuple[FlowRecord, bool]]:
        return Operation(
            lambda: advancing.submit(self._flow_tables, flow, now),
            again=lambda: advancing.submit(self._flow_tables, flow, now),
            wakes=frozenset({Wake.WORKERS}),
        )

    def flow_inputs(self, job_ids: Sequence[UUID]) -> Operation[dict[UUID, dict[str, str]]]:
        return Operation(lambda: self._inputs(job_ids), writes=False)

    def cancel_flow(
        self, flow_id: UUID, reason: str | None = None, now: datetime | None = None
    ) -> Operation[FlowChange]:
        return Operation(
            lambda: advancing.cancel(self._flow_tables, flow_id, reason, now), wakes=_WAKES
        )

    def retry_flow(self, flow_id: UUID, now: datetime | None = None) -> Operation[FlowChange]:
        return Operation(lambda: advancing.retry(self._flow_tables, flow_id, now), wakes=_WAKES)

    def resume_flow(self, flow_id: UUID, now: datetime | None = None) -> Operation[FlowChange]:
        return Operation(lambda: advancing.resume(self._flow_tables, flow_id, now), wakes=_WAKES)

    def flow(self, flow_id: UUID) -> Operation[FlowRecord | None]:
        return Operation(lambda: self._flow(flow_id), writes=False, atomic=False)

    def flows(
        self,
        limit: int,
        name: str | None = None,
        states: frozenset[FlowState] | None = None,
        before: UUID | None = None,
    ) -> Operation[list[FlowRecord]]:
        return Operation(
            lambda: self._flows(limit, name, states, before), writes=False, atomic=False
        )

    def flow_nodes(self, flow_id: UUID) -> Operation[list[NodeView]]:
        return Operation(lambda: self._flow_nodes(flow_id), writes=False, atomic=False)

    def start_queued_flows(self, now: datetime | None = None) -> Operation[int]:
        return Operation(
            lambda: self._start_queued(now), wakes=frozenset({Wake.WORKERS}), quiet=True
        )

    def purge_flows(self, finished_before: datetime, limit: int) -> Operation[int]:
        return Operation(lambda: self._purge_flows(finished_before, limit), atomic=False)

    def _inputs(self, job_ids: Sequence[UUID]) -> Steps[dict[UUID, dict[str, str]]]:
        rows = yield Statement(self.text(BINDINGS), {"ids": list(job_ids)})
        bindings = {job_id: msgspec.json.decode(text, type=list[Binding]) for job_id, text in rows}
        needed = {
            node for theirs in bindings.values() for binding in theirs for node in binding.nodes
        }
        if not needed:
            return {}
        stored = yield from self._flow_tables.results(sorted(needed))
        results = results_by_node(stored)
        return {job_id: bound(theirs, results) for job_id, theirs in bindings.items()}

    def _flow(self, flow_id: UUID) -> Steps[FlowRecord | None]:
        rows = yield Statement(self.text(FLOW), {"flow": flow_id})
        return flow_record(rows[0]) if rows else None

    def _flows(
        self,
        limit: int,
        name: str | None,
        states: frozenset[FlowState] | None,
        before: UUID | None,
    ) -> Steps[list[FlowRecord]]:
        wanted = None if states is None else texts(states)
        values = {"limit": limit, "name": name, "states": wanted, "before": before}
        rows = yield Statement(self.text(FLOWS), values)
        return [flow_record(row) for row in rows]

    def _flow_nodes(self, flow_id: UUID) -> Steps[list[NodeView]]:
        rows = yield Statement(self.text(VIEW), {"flow": flow_id})
        edges = yield from self._flow_tables.edges_of(flow_id)
        return node_views(rows, edges)

    def _start_queued(self, now: datetime | None) -> Steps[int]:
        rows = yield Statement(self.text(QUEUED_NAMES))
        names = sorted(row[0] for row in rows)
        return (yield from advancing.start_queued(self._flow_tables, names, now)) if names else 0

    def _purge_flows(self, before: datetime, limit: int) -> Steps[int]:
        rows = yield Statement(self.text(PURGE), {"before": before, "limit": limit})
        return len(rows)
