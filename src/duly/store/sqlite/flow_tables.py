"""The tables of flows on SQLite; what moves a flow on is in duly.store.advancing."""

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
from duly.model.identifiers import id_of
from duly.model.job import Draft, State
from duly.policy.flow_inputs import StoredResult
from duly.policy.flow_rules import ENDED
from duly.policy.states import CANCELLED_AT_ONCE
from duly.store.operation import Row, Statement, Steps
from duly.store.records import FLOW_COLUMNS, JOB_COLUMNS, NODE_COLUMNS
from duly.store.sqlite.finishing import is_undone_first, move, undo_first, with_ends
from duly.store.sqlite.reading import LIVE_JOB
from duly.store.sqlite.reopening import FORGIVE_STEPS, reopened
from duly.store.sqlite.rows import COLUMN, array, changed, clock, job_row, micros, moment
from duly.store.sqlite.submission import INSERT, LANE

FLOW_LIST = ", ".join(FLOW_COLUMNS)
NODE_LIST = ", ".join(NODE_COLUMNS)
NODE_CHANGES = ("state", "waits_for", "succeeded", "failed", "skipped", "reason")
FLOW_CHANGES = (
    "state",
    "policy",
    "total",
    "open",
    "succeeded",
    "failed",
    "cancelled",
    "skipped",
    "failures",
    "reason",
    "finished_at",
)

ADD_FLOW = (
    f"INSERT INTO flows ({FLOW_LIST}) VALUES ({', '.join('?' * len(FLOW_COLUMNS))})"
    " ON CONFLICT (id) DO NOTHING RETURNING id"
)
ADD_NODE = f"INSERT INTO flow_nodes ({NODE_LIST}) VALUES ({', '.join('?' * len(NODE_COLUMNS))})"
ADD_EDGE = "INSERT INTO flow_edges (parent, child, condition) VALUES (?, ?, ?)"
FLOW = f"SELECT {FLOW_LIST} FROM flows WHERE id = ?"
ACTIVE = "SELECT count(*) FROM flows WHERE name = ? AND finished_at IS NULL AND state <> 'queued'"
QUEUED = (
    f"SELECT {FLOW_LIST} FROM flows WHERE name = ? AND finished_at IS NULL AND state = 'queued'"
    " ORDER BY id LIMIT 100"
)
NODE = f"SELECT {NODE_LIST} FROM flow_nodes WHERE id = ?"
NODES_OF = f"SELECT {NODE_LIST} FROM flow_nodes WHERE flow_id = ? ORDER BY number, position"
UNENDED_NODES_OF = (
    f"SELECT {NODE_LIST} FROM flow_nodes WHERE flow_id = ?"
    " AND state NOT IN (SELECT value FROM json_each(?)) ORDER BY number, position"
)
EDGES = "SELECT parent, child, condition FROM flow_edges WHERE parent = ?"
EDGES_OF = (
    "SELECT parent, child, condition FROM flow_nodes"
    " JOIN flow_edges ON flow_edges.parent = flow_nodes.id WHERE flow_id = ?"
)
RESULT = (
    "SELECT id, kind, item_of, result, 0 FROM flow_nodes WHERE id = ?1 UNION ALL"
    " SELECT id, kind, item_of, result, position FROM flow_nodes WHERE item_of = ?1 ORDER BY 5"
)
WRITE_NODE = (
    f"UPDATE flow_nodes SET {', '.join(f'{name} = ?' for name in NODE_CHANGES)},"
    " result = coalesce(?, result) WHERE id = ?"
)
WRITE_FLOW = f"UPDATE flows SET {', '.join(f'{name} = ?' for name in FLOW_CHANGES)} WHERE id = ?"
DROP_NODE = "DELETE FROM flow_nodes WHERE id = ?"
FORGET_STEPS = "DELETE FROM steps WHERE job_id = ?"
RELEASE = (
    "UPDATE jobs SET state = 'pending', run_at = coalesce(?1 + ?2, max(run_at, ?1))"
    " WHERE id = ?3 AND state = 'blocked'"
)
REQUEST_CANCEL = (
    "UPDATE jobs SET cancel_requested_at = coalesce(cancel_requested_at, ?) WHERE id = ?"
)
TAKE_BACK = {
    table: f"DELETE FROM {table} WHERE id = ? RETURNING {', '.join(JOB_COLUMNS)}"
    for table in ("dead", "archive")
}


class SqliteFlowTables:
    """See duly.store.advancing.FlowTables. The writer is alone: nothing has to be locked."""

    def instant(self, now: datetime | None) -> Steps[datetime]:
        yield from ()
        return moment(clock(now))

    def add_flow(self, flow: FlowRecord) -> Steps[bool]:
        return bool((yield Statement(ADD_FLOW, _row(flow, FLOW_COLUMNS))))

    def add_nodes(self, nodes: Sequence[FlowNode]) -> Steps[None]:
        yield Statement(ADD_NODE, [_row(node, NODE_COLUMNS) for node in nodes], many=True)

    def add_edges(self, edges: Sequence[Edge]) -> Steps[None]:
        rows = [(edge.parent.bytes, edge.child.bytes, edge.condition.value) for edge in edges]
        yield Statement(ADD_EDGE, rows, many=True)

    def add_jobs(self, drafts: Sequence[Draft], blocked: bool, now: datetime) -> Steps[None]:
        state = State.BLOCKED if blocked else State.PENDING
        lanes = sorted({(draft.queue, draft.task, int(draft.priority)) for draft in drafts})
        yield Statement(LANE, lanes, many=True)
        rows = [changed(job_row(each.stored(now)), state=state.value) for each in drafts]
        yield Statement(INSERT, rows, many=True)

    def lock(self, flow_ids: Sequence[UUID]) -> Steps[list[FlowRecord]]:
        rows = yield Statement(FLOW, [(flow_id.bytes,) for flow_id in flow_ids], many=True)
        return [flow_record(row) for row in rows]

    def lock_name(self, name: str) -> Steps[None]:
        yield from ()

    def active(self, name: str) -> Steps[int]:
        ((count,),) = yield Statement(ACTIVE, (name,))
        return int(count)

    def queued(self, name: str) -> Steps[list[FlowRecord]]:
        rows = yield Statement(QUEUED, (name,))
        return [flow_record(row) for row in rows]

    def nodes(self, ids: Sequence[UUID]) -> Steps[list[FlowNode]]:
        rows = yield Statement(NODE, [(node_id.bytes,) for node_id in ids], many=True)
        return [_node(row) for row in rows]

    def nodes_of(self, flow_id: UUID, unended: bool) -> Steps[list[FlowNode]]:
        if unended:
            ended = array([state.value for state in ENDED])
            rows = yield Statement(UNENDED_NODES_OF, (flow_id.bytes, ended))
        else:
            rows = yield Statement(NODES_OF, (flow_id.bytes,))
        return [_node(row) for row in rows]

    def edges(self, parents: Sequence[UUID]) -> Steps[list[Edge]]:
        rows = yield Statement(EDGES, [(parent.bytes,) for parent in parents], many=True)
        return [_edge(row) for row in rows]

    def edges_of(self, flow_id: UUID) -> Steps[list[Edge]]:
        rows = yield Statement(EDGES_OF, (flow_id.bytes,))
        return [_edge(row) for row in rows]

    def results(self, ids: Sequence[UUID]) -> Steps[list[StoredResult]]:
        rows = yield Statement(RESULT, [(node_id.bytes,) for node_id in ids], many=True)
        return [
            (id_of(node), NodeKind(kind), _identifier(item_of), result)
            for node, kind, item_of, result, _ in rows
        ]

    def write_nodes(self, nodes: Sequence[FlowNode], results: dict[UUID, str]) -> Steps[None]:
        rows = [(*_row(node, NODE_CHANGES), results.get(node.id), node.id.bytes) for node in nodes]
        yield Statement(WRITE_NODE, rows, many=True)

    def write_flows(self, flows: Sequence[FlowRecord]) -> Steps[None]:
        rows = [(*_row(flow, FLOW_CHANGES), flow.id.bytes) for flow in flows]
        yield Statement(WRITE_FLOW, rows, many=True)

    def drop_nodes(self, ids: Sequence[UUID]) -> Steps[None]:
        yield Statement(DROP_NODE, [(node_id.bytes,) for node_id in ids], many=True)

    def release_jobs(self, jobs: Sequence[tuple[UUID, float | None]], now: datetime) -> Steps[None]:
        rows = [
            (micros(now), None if delay is None else int(delay * 1e6), job_id.bytes)
            for job_id, delay in jobs
        ]
        yield Statement(RELEASE, rows, many=True)

    def cancel_jobs(self, ids: Sequence[UUID], reason: str, now: datetime) -> Steps[list[UUID]]:
        live = yield Statement(LIVE_JOB, [(job_id.bytes,) for job_id in ids], many=True)
        at_once = [row for row in live if row[COLUMN["state"]] in CANCELLED_AT_ONCE]
        running = [row for row in live if row[COLUMN["state"]] not in CANCELLED_AT_ONCE]
        instant = micros(now)
        ends = with_ends([(row, "cancelled", reason) for row in at_once], instant)
        ended = [row for row in ends if not is_undone_first(row)]
        yield from move(ended, instant)
        yield from undo_first([row for row in ends if is_undone_first(row)], instant)
        if running:
            requests = [(instant, row[0]) for row in running]
            yield Statement(REQUEST_CANCEL, requests, many=True)
        return [id_of(row[0]) for row in ended]

    def reopen_jobs(
        self, ids: Sequence[UUID], arguments: str | None, now: datetime
    ) -> Steps[list[UUID]]:
        rows: list[Row] = []
        for text in TAKE_BACK.values():
            rows += yield Statement(text, [(job_id.bytes,) for job_id in ids], many=True)
        again = [
            reopened(row, State.BLOCKED, micros(now), arguments, _keeps_steps(row)) for row in rows
        ]
        kept = [(row[0],) for row in rows if _keeps_steps(row)]
        afresh = [(row[0],) for row in rows if not _keeps_steps(row)]
        yield Statement(FORGIVE_STEPS, kept, many=True)
        yield Statement(FORGET_STEPS, afresh, many=True)
        yield Statement(INSERT, again, many=True)
        return [id_of(row[0]) for row in rows]


TABLES = SqliteFlowTables()


def _row(record: msgspec.Struct, names: Sequence[str]) -> Row:
    return tuple(_stored(getattr(record, name)) for name in names)


def _stored(value: Any) -> Any:
    match value:
        case StrEnum():
            return value.value
        case UUID():
            return value.bytes
        case datetime():
            return micros(value)
        case bool():
            return int(value)
    return value


def _identifier(value: bytes | None) -> UUID | None:
    return None if value is None else id_of(value)


def flow_record(row: Row) -> FlowRecord:
    """The row, in the order of FLOW_COLUMNS, as a record."""
    values = dict(zip(FLOW_COLUMNS, row, strict=True))
    values["id"] = id_of(values["id"])
    values["parent_id"] = _identifier(values["parent_id"])
    values["state"] = FlowState(values["state"])
    values["policy"] = FailurePolicy(values["policy"])
    values["created_at"] = moment(values["created_at"])
    if values["finished_at"] is not None:
        values["finished_at"] = moment(values["finished_at"])
    return FlowRecord(**values)


def _node(row: Row) -> FlowNode:
    values = dict(zip(NODE_COLUMNS, row, strict=True))
    for name in ("id", "flow_id", "item_of"):
        values[name] = _identifier(values[name])
    for name in ("spared", "tolerated", "kept"):
        values[name] = bool(values[name])
    values["kind"] = NodeKind(values["kind"])
    values["rule"] = Rule(values["rule"])
    values["state"] = NodeState(values["state"])
    return FlowNode(**values)


def _edge(row: Row) -> Edge:
    parent, child, condition = row
    return Edge(id_of(parent), id_of(child), Condition(condition))


def _keeps_steps(row: Row) -> bool:
    """Whether a job that is run again goes on from its recorded steps: one that died does."""
    died = row[COLUMN["state"]] == State.DEAD and row[COLUMN["undoing"]] is None
    return bool(row[COLUMN["stepped"]]) and died
