"""Flows at the level of a store, in few words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec

from duly.model.flow import (
    Binding,
    Condition,
    Edge,
    Expansion,
    FailurePolicy,
    FlowChange,
    FlowDraft,
    FlowNode,
    FlowRecord,
    NodeKind,
    NodeState,
    Rule,
)
from duly.model.identifiers import new_id
from duly.model.job import Draft, JobRecord
from duly.model.settlement import Settlement, bury, succeed
from duly.policy.flow_graph import arranged
from tests.support.stores import Scene, draft, failure


class FlowScene:
    """A flow in the making, then in a store; nodes go by their names."""

    def __init__(self, scene: Scene, name: str = "etl") -> None:
        self.scene = scene
        self.name = name
        self.id = new_id()
        self.ids: dict[str, UUID] = {}
        self._nodes: list[FlowNode] = []
        self._drafts: list[Draft] = []
        self._edges: list[Edge] = []

    def node(
        self,
        name: str,
        *parents: str,
        rule: Rule = Rule.ALL_SUCCEEDED,
        gets: dict[str, str | list[str]] | None = None,
        on: Condition = Condition.SUCCEEDED,
        delay: float | None = None,
        **fields: Any,
    ) -> FlowScene:
        """Add a node that is one job; `gets` binds parameters to results."""
        job = draft(flow_id=self.id, task=f"{name}_task" if fields.pop("own", False) else "work")
        job = msgspec.structs.replace(job, **fields)
        self._drafts.append(job)
        self._add(name, job.id, parents, on, rule=rule, delay=delay, bindings=self._bound(gets))
        return self

    def map(
        self,
        name: str,
        *parents: str,
        over: str | None = None,
        values: str | None = None,
        parameter: str = "item",
    ) -> FlowScene:
        """Add a node that is expanded over the result of another, or over given values."""
        expansion = Expansion(
            draft=draft(flow_id=self.id),
            parameter=parameter,
            over=None if over is None else self.ids[over],
            values=values,
        )
        above = (*parents, over) if over is not None else parents
        text = msgspec.json.encode(expansion).decode()
        self._add(name, new_id(), above, Condition.SUCCEEDED, kind=NodeKind.MAP, expansion=text)
        return self

    def draft(
        self, policy: FailurePolicy = FailurePolicy.CANCEL, max_active: int | None = None
    ) -> FlowDraft:
        """The flow as it is submitted."""
        nodes = [
            msgspec.structs.replace(node, kept=True) for node in arranged(self._nodes, self._edges)
        ]
        return FlowDraft(
            id=self.id,
            name=self.name,
            policy=policy,
            max_active=max_active,
            nodes=tuple(nodes),
            drafts=tuple(self._drafts),
            edges=tuple(self._edges),
        )

    def submit(
        self, policy: FailurePolicy = FailurePolicy.CANCEL, max_active: int | None = None
    ) -> FlowScene:
        """Store the flow."""
        store = self.scene.store
        _, created = store.run(store.submit_flow(self.draft(policy, max_active), self.scene.now))
        assert created
        return self

    def record(self) -> FlowRecord:
        """The flow as it is stored."""
        record = self.scene.store.run(self.scene.store.flow(self.id))
        assert record is not None
        return record

    def states(self) -> dict[str, NodeState]:
        """Where each node stands."""
        views = self.scene.store.run(self.scene.store.flow_nodes(self.id))
        return {view.name: view.state for view in views}

    def jobs(self, limit: int = 1000) -> list[JobRecord]:
        """Claim what is due, for a new worker."""
        return self.scene.claim(self.scene.hire(), limit)

    def take(self, *names: str) -> list[JobRecord]:
        """Claim what is due: exactly these nodes."""
        found = {job.id: job for job in self.jobs()}
        assert {self._name(job_id) for job_id in found} == set(names)
        return [found[self.ids[name]] for name in names]

    def succeed(self, *names: str, result: str = "1") -> None:
        """Claim exactly these nodes and let them succeed, in one batch."""
        jobs = self.take(*names)
        self.scene.settle(*(succeed(job.id, job.token, result, job.flow_id) for job in jobs))

    def kill(self, *names: str) -> None:
        """Claim exactly these nodes and let them die, in one batch."""
        self.scene.settle(*(died(job) for job in self.take(*names)))

    def cancel(self) -> FlowChange:
        """Cancel the flow."""
        return self.scene.store.run(self.scene.store.cancel_flow(self.id, None, self.scene.now))

    def retry(self) -> FlowChange:
        """Retry the flow."""
        return self.scene.store.run(self.scene.store.retry_flow(self.id, self.scene.now))

    def resume(self) -> FlowChange:
        """Resume the flow."""
        return self.scene.store.run(self.scene.store.resume_flow(self.id, self.scene.now))

    def inputs(self, *jobs: JobRecord) -> list[dict[str, str]]:
        """What the jobs get from others."""
        store = self.scene.store
        found = store.run(store.flow_inputs([job.id for job in jobs]))
        return [found.get(job.id, {}) for job in jobs]

    def _name(self, job_id: UUID) -> str:
        return next((name for name, each in self.ids.items() if each == job_id), str(job_id))

    def _bound(self, gets: dict[str, str | list[str]] | None) -> str | None:
        if not gets:
            return None
        bindings = [
            Binding(
                parameter,
                tuple(self.ids[each] for each in ([of] if isinstance(of, str) else of)),
                isinstance(of, list),
            )
            for parameter, of in gets.items()
        ]
        return msgspec.json.encode(bindings).decode()

    def _add(
        self, name: str, node_id: UUID, parents: Sequence[str], on: Condition, **fields: Any
    ) -> None:
        number = len(self._nodes)
        self._nodes.append(
            FlowNode(id=node_id, flow_id=self.id, number=number, name=name, **fields)
        )
        self.ids[name] = node_id
        self._edges += [Edge(self.ids[parent], node_id, on) for parent in parents]


def died(job: JobRecord) -> Settlement:
    """The end of an attempt after which none follows."""
    return msgspec.structs.replace(
        bury(job.id, job.token, "exhausted", failure()), flow_id=job.flow_id
    )
