"""The tables of flows on PostgreSQL; what moves a flow on is in duly.store.advancing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
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
    Rule,
)
from duly.model.job import Draft, State
from duly.policy.flow_inputs import StoredResult
from duly.policy.flow_rules import ENDED
from duly.policy.states import CANCELLED_AT_ONCE
from duly.store.operation import Row, Statement, Steps
from duly.store.postgres.finishing import FINISH, UNDO_FIRST
from duly.store.postgres.reopening import FORGIVE_STEPS, reopened
from duly.store.postgres.rows import CLOCK, COLUMNS, NOW, InSchema, listed, utc
from duly.store.postgres.submission import INSTANT, insertion
from duly.store.records import FLOW_COLUMNS, NODE_COLUMNS

FLOW_LIST = ", ".join(FLOW_COLUMNS)
NODE_LIST = ", ".join(NODE_COLUMNS)
NODE_TYPES = {
    "id": "uuid",
    "flow_id": "uuid",
    "number": "integer",
    "name": "text",
    "kind": "text",
    "rule": "text",
    "state": "text",
    "waits_for": "integer",
    "succeeded": "integer",
    "failed": "integer",
    "skipped": "integer",
    "spared": "boolean",
    "tolerated": "boolean",
    "kept": "boolean",
    "delay": "double precision",
    "bindings": "text",
    "expansion": "text",
    "item_of": "uuid",
    "position": "integer",
    "reason": "text",
}
NODE_CHANGES = {
    name: NODE_TYPES[name]
    for name in ("state", "waits_for", "succeeded", "failed", "skipped", "reason")
}
FLOW_CHANGES = {
    "state": "text",
    "policy": "text",
    "total": "integer",
    "open": "integer",
    "succeeded": "integer",
    "failed": "integer",
    "cancelled": "integer",
    "skipped": "integer",
    "failures": "integer",
    "reason": "text",
    "finished_at": "timestamptz",
}

ADD_FLOW = f"""
INSERT INTO {{schema}}.flows ({FLOW_LIST})
VALUES ({", ".join(f"%({name})s" for name in FLOW_COLUMNS)})
ON CONFLICT (id) DO NOTHING RETURNING id
"""
ADD_NODES = f"""
INSERT INTO {{schema}}.flow_nodes ({NODE_LIST})
SELECT * FROM unnest({", ".join(f"%({name})s::{kind}[]" for name, kind in NODE_TYPES.items())})
"""
ADD_EDGES = """
INSERT INTO {schema}.flow_edges (parent, child, condition)
SELECT * FROM unnest(%(parents)s::uuid[], %(children)s::uuid[], %(conditions)s::text[])
"""
LOCK = f"""
SELECT {FLOW_LIST} FROM {{schema}}.flows WHERE id = ANY(%(ids)s::uuid[]) ORDER BY id FOR UPDATE
"""
LOCK_NAME = "SELECT pg_advisory_xact_lock(hashtextextended(%(name)s, 0))"
ACTIVE = """
SELECT count(*) FROM {schema}.flows
WHERE name = %(name)s AND finished_at IS NULL AND state <> 'queued'
"""
# One that somebody has locked is being cancelled.
QUEUED = f"""
SELECT {FLOW_LIST} FROM {{schema}}.flows
WHERE name = %(name)s AND finished_at IS NULL AND state = 'queued'
ORDER BY id LIMIT 100 FOR UPDATE SKIP LOCKED
"""
NODES = f"SELECT {NODE_LIST} FROM {{schema}}.flow_nodes WHERE id = ANY(%(ids)s::uuid[])"
NODES_OF = f"""
SELECT {NODE_LIST} FROM {{schema}}.flow_nodes
WHERE flow_id = %(flow)s AND (NOT %(unended)s OR state NOT IN ({listed(ENDED)}))
ORDER BY number, position
"""
EDGES = """
SELECT parent, child, condition FROM {schema}.flow_edges WHERE parent = ANY(%(ids)s::uuid[])
"""
EDGES_OF = """
SELECT parent, child, condition FROM {schema}.flow_nodes
JOIN {schema}.flow_edges ON flow_edges.parent = flow_nodes.id WHERE flow_id = %(flow)s
"""
RESULTS = """
SELECT id, kind, item_of, result FROM {schema}.flow_nodes
WHERE id = ANY(%(ids)s::uuid[]) OR item_of = ANY(%(ids)s::uuid[]) ORDER BY position
"""
WRITE_NODES = f"""
UPDATE {{schema}}.flow_nodes
SET {", ".join(f"{name} = changed.{name}" for name in NODE_CHANGES)},
    result = coalesce(changed.result, flow_nodes.result)
FROM unnest(%(ids)s::uuid[],
    {", ".join(f"%({name})s::{kind}[]" for name, kind in NODE_CHANGES.items())},
    %(results)s::text[]) AS changed (id, {", ".join(NODE_CHANGES)}, result)
WHERE flow_nodes.id = ANY(%(ids)s::uuid[]) AND flow_nodes.id = changed.id
"""
WRITE_FLOWS = f"""
UPDATE {{schema}}.flows SET {", ".join(f"{name} = changed.{name}" for name in FLOW_CHANGES)}
FROM unnest(%(ids)s::uuid[],
    {", ".join(f"%({name})s::{kind}[]" for name, kind in FLOW_CHANGES.items())})
    AS changed (id, {", ".join(FLOW_CHANGES)})
WHERE flows.id = changed.id
"""
DROP_NODES = "DELETE FROM {schema}.flow_nodes WHERE id = ANY(%(ids)s::uuid[])"
RELEASE = f"""
WITH {CLOCK}
UPDATE {{schema}}.jobs SET state = 'pending',
    run_at = coalesce({NOW} + make_interval(secs => released.delay), greatest(run_at, {NOW}))
FROM unnest(%(ids)s::uuid[], %(delays)s::double precision[]) AS released (id, delay)
WHERE jobs.id = ANY(%(ids)s::uuid[]) AND jobs.id = released.id AND state = 'blocked'
"""
LOCK_JOBS = """
SELECT id, state, undos > 0 AND undoing IS NULL FROM {schema}.jobs
WHERE id = ANY(%(ids)s::uuid[]) ORDER BY id FOR UPDATE
"""
REQUEST_CANCEL = """
UPDATE {schema}.jobs SET cancel_requested_at = coalesce(cancel_requested_at, %(now)s)
WHERE id = ANY(%(ids)s::uuid[])
"""
# A job that died goes on from its recorded steps; any other starts afresh.
_GOES_ON = "(raised.state = 'dead' AND raised.undoing IS NULL)"
FORGET_STEPS = """
DELETE FROM {schema}.steps WHERE job_id = ANY(ARRAY(
    SELECT id FROM {schema}.archive WHERE id = ANY(%(ids)s::uuid[]) AND stepped
    UNION ALL
    SELECT id FROM {schema}.dead WHERE id = ANY(%(ids)s::uuid[]) AND undoing IS NOT NULL
))
"""
REOPEN = f"""
WITH from_dead AS (
    DELETE FROM {{schema}}.dead WHERE id = ANY(%(ids)s::uuid[]) RETURNING {COLUMNS}
),
from_archive AS (
    DELETE FROM {{schema}}.archive WHERE id = ANY(%(ids)s::uuid[]) RETURNING {COLUMNS}
),
raised AS (SELECT * FROM from_dead UNION ALL SELECT * FROM from_archive)
INSERT INTO {{schema}}.jobs ({COLUMNS})
SELECT {reopened(State.BLOCKED, "%(now)s", _GOES_ON)} FROM raised RETURNING id
"""


class PostgresFlowTables(InSchema):
    """See duly.store.advancing.FlowTables."""

    def instant(self, now: datetime | None) -> Steps[datetime]:
        ((instant,),) = yield Statement(INSTANT, {"now": now})
        return utc(instant)

    def add_flow(self, flow: FlowRecord) -> Steps[bool]:
        values = msgspec.structs.asdict(flow)
        values |= {"state": flow.state.value, "policy": flow.policy.value}
        return bool((yield Statement(self.text(ADD_FLOW), values)))

    def add_nodes(self, nodes: Sequence[FlowNode]) -> Steps[None]:
        yield Statement(self.text(ADD_NODES), _arrays(nodes, NODE_TYPES))

    def add_edges(self, edges: Sequence[Edge]) -> Steps[None]:
        yield Statement(
            self.text(ADD_EDGES),
            {
                "parents": [edge.parent for edge in edges],
                "children": [edge.child for edge in edges],
                "conditions": [edge.condition.value for edge in edges],
            },
        )

    def add_jobs(self, drafts: Sequence[Draft], blocked: bool, now: datetime) -> Steps[None]:
        template, parameters = insertion(drafts, now, State.BLOCKED if blocked else State.PENDING)
        yield Statement(self.text(template), parameters)

    def lock(self, flow_ids: Sequence[UUID]) -> Steps[list[FlowRecord]]:
        rows = yield Statement(self.text(LOCK), {"ids": list(flow_ids)})
        return [flow_record(row) for row in rows]

    def lock_name(self, name: str) -> Steps[None]:
        yield Statement(LOCK_NAME, {"name": f"duly flow {self.schema} {name}"})

    def active(self, name: str) -> Steps[int]:
        ((count,),) = yield Statement(self.text(ACTIVE), {"name": name})
        return int(count)

    def queued(self, name: str) -> Steps[list[FlowRecord]]:
        rows = yield Statement(self.text(QUEUED), {"name": name})
        return [flow_record(row) for row in rows]

    def nodes(self, ids: Sequence[UUID]) -> Steps[list[FlowNode]]:
        rows = yield Statement(self.text(NODES), {"ids": list(ids)})
        return [node_record(row) for row in rows]

    def nodes_of(self, flow_id: UUID, unended: bool) -> Steps[list[FlowNode]]:
        rows = yield Statement(self.text(NODES_OF), {"flow": flow_id, "unended": unended})
        return [node_record(row) for row in rows]

    def edges(self, parents: Sequence[UUID]) -> Steps[list[Edge]]:
        rows = yield Statement(self.text(EDGES), {"ids": list(parents)})
        return [_edge(row) for row in rows]

    def edges_of(self, flow_id: UUID) -> Steps[list[Edge]]:
        rows = yield Statement(self.text(EDGES_OF), {"flow": flow_id})
        return [_edge(row) for row in rows]

    def results(self, ids: Sequence[UUID]) -> Steps[list[StoredResult]]:
        rows = yield Statement(self.text(RESULTS), {"ids": list(ids)})
        return [(node, NodeKind(kind), item_of, result) for node, kind, item_of, result in rows]

    def write_nodes(self, nodes: Sequence[FlowNode], results: dict[UUID, str]) -> Steps[None]:
        values = _arrays(nodes, NODE_CHANGES)
        values["ids"] = [node.id for node in nodes]
        values["results"] = [results.get(node.id) for node in nodes]
        yield Statement(self.text(WRITE_NODES), values)

    def write_flows(self, flows: Sequence[FlowRecord]) -> Steps[None]:
        values = _arrays(flows, FLOW_CHANGES)
        values["ids"] = [flow.id for flow in flows]
        yield Statement(self.text(WRITE_FLOWS), values)

    def drop_nodes(self, ids: Sequence[UUID]) -> Steps[None]:
        yield Statement(self.text(DROP_NODES), {"ids": list(ids)})

    def release_jobs(self, jobs: Sequence[tuple[UUID, float | None]], now: datetime) -> Steps[None]:
        values = {
            "ids": [job_id for job_id, _ in jobs],
            "delays": [delay for _, delay in jobs],
            "now": now,
        }
        yield Statement(self.text(RELEASE), values)

    def cancel_jobs(self, ids: Sequence[UUID], reason: str, now: datetime) -> Steps[list[UUID]]:
        live = yield Statement(self.text(LOCK_JOBS), {"ids": list(ids)})
        quiet = [row for row in live if row[1] in CANCELLED_AT_ONCE]
        at_once = [job_id for job_id, _, undoes in quiet if not undoes]
        undone = [job_id for job_id, _, undoes in quiet if undoes]
        running = [row[0] for row in live if row[1] not in CANCELLED_AT_ONCE]
        if at_once:
            yield Statement(self.text(FINISH), {"now": now, "jobs": at_once, "reason": reason})
        if undone:
            yield Statement(self.text(UNDO_FIRST), {"now": now, "jobs": undone, "reason": reason})
        if running:
            yield Statement(self.text(REQUEST_CANCEL), {"ids": running, "now": now})
        return at_once

    def reopen_jobs(
        self, ids: Sequence[UUID], arguments: str | None, now: datetime
    ) -> Steps[list[UUID]]:
        yield Statement(self.text(FORGET_STEPS), {"ids": list(ids)})
        yield Statement(self.text(FORGIVE_STEPS), {"jobs": list(ids)})
        rows = yield Statement(
            self.text(REOPEN), {"ids": list(ids), "arguments": arguments, "now": now}
        )
        return [job_id for (job_id,) in rows]


def _arrays(rows: Sequence[Any], names: dict[str, str]) -> dict[str, Any]:
    """One array a column."""
    return {name: [_plain(getattr(row, name)) for row in rows] for name in names}


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, StrEnum) else value


def flow_record(row: Row) -> FlowRecord:
    """The row, in the order of FLOW_COLUMNS, as a record."""
    values = dict(zip(FLOW_COLUMNS, row, strict=True))
    values["state"] = FlowState(values["state"])
    values["policy"] = FailurePolicy(values["policy"])
    values["created_at"] = utc(values["created_at"])
    if values["finished_at"] is not None:
        values["finished_at"] = utc(values["finished_at"])
    return FlowRecord(**values)


def node_record(row: Row) -> FlowNode:
    """The row, in the order of NODE_COLUMNS, as a record."""
    values = dict(zip(NODE_COLUMNS, row, strict=True))
    values["kind"] = NodeKind(values["kind"])
    values["rule"] = Rule(values["rule"])
    values["state"] = NodeState(values["state"])
    return FlowNode(**values)


def _edge(row: Row) -> Edge:
    parent, child, condition = row
    return Edge(parent, child, Condition(condition))
