"""Flows that have been submitted: `app.flows`."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from duly.client.client import Client, as_id
from duly.client.filtering import page, states_of
from duly.client.job import Job
from duly.client.options import Duration
from duly.errors import FlowNotSucceeded, InvalidFlow, UnknownFlow
from duly.model.flow import FlowChange, FlowRecord, FlowState, NodeKind, NodeView
from duly.policy import options
from duly.policy.duration import parse as parse_duration
from duly.policy.flow_rules import FINISHED
from duly.store.operation import Operation, Wake

LONGEST_NAP = 0.5


class FlowRun:
    """One flow: its record as of the last look, and what can be done with it."""

    __slots__ = ("_client", "created", "record")

    def __init__(self, record: FlowRecord, client: Client, created: bool = False) -> None:
        self.record = record
        self.created = created
        self._client = client

    @property
    def id(self) -> UUID:
        """The flow's id."""
        return self.record.id

    @property
    def name(self) -> str:
        """Its name."""
        return self.record.name

    @property
    def state(self) -> FlowState:
        """Its state, as of the last look."""
        return self.record.state

    def refresh(self) -> FlowRun:
        """Look again."""
        self.record = self._found(self._client.run(self._client.store.flow(self.id)))
        return self

    async def arefresh(self) -> FlowRun:
        """Look again."""
        self.record = self._found(await self._client.arun(self._client.store.flow(self.id)))
        return self

    def nodes(self) -> list[NodeView]:
        """Its nodes in the order they were made in."""
        return self._client.run(self._client.store.flow_nodes(self.id))

    async def anodes(self) -> list[NodeView]:
        """Its nodes in the order they were made in."""
        return await self._client.arun(self._client.store.flow_nodes(self.id))

    def job(self, node: str) -> Job[Any]:
        """The job of the node of this name."""
        return self._client.get(_job_id(self.nodes(), node, self.name))

    async def ajob(self, node: str) -> Job[Any]:
        """The job of the node of this name."""
        return await self._client.aget(_job_id(await self.anodes(), node, self.name))

    def wait(self, timeout: Duration | None = None) -> FlowRun:
        """Wait for the flow's success. Raises FlowNotSucceeded when it failed or was cancelled,
        and TimeoutError when it has not finished in time; it goes on then."""
        deadline = _deadline(timeout)
        change = self._client.store.watch(Wake.WAITERS)
        try:
            while self.refresh().state not in FINISHED:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError(
                        f"flow {self.name!r} ({self.id}) has not finished: it is {self.state}"
                    )
                change.wait(min(LONGEST_NAP, left))
        finally:
            change.close()
        return self._succeeded()

    async def await_end(self, timeout: Duration | None = None) -> FlowRun:
        """Wait without blocking the event loop; see `wait`."""
        import asyncio

        return await asyncio.to_thread(self.wait, timeout)

    def cancel(self, reason: str | None = None) -> FlowChange:
        """Cancel what has not ended; nodes that handle failures still run, unless it is cancelled
        a second time."""
        return self._client.run(self._cancellation(reason))

    async def acancel(self, reason: str | None = None) -> FlowChange:
        """Cancel what has not ended; see `cancel`."""
        return await self._client.arun(self._cancellation(reason))

    def retry(self) -> FlowChange:
        """Run the failed part again."""
        return self._client.run(self._client.store.retry_flow(self.id))

    async def aretry(self) -> FlowChange:
        """Run the failed part again."""
        return await self._client.arun(self._client.store.retry_flow(self.id))

    def resume(self) -> FlowChange:
        """Let a paused flow go on where it can, without what failed."""
        return self._client.run(self._client.store.resume_flow(self.id))

    async def aresume(self) -> FlowChange:
        """Let a paused flow go on where it can, without what failed."""
        return await self._client.arun(self._client.store.resume_flow(self.id))

    def _cancellation(self, reason: str | None) -> Operation[FlowChange]:
        why = None if reason is None else options.reason(reason)
        return self._client.store.cancel_flow(self.id, why)

    def _succeeded(self) -> FlowRun:
        if self.state is not FlowState.SUCCEEDED:
            raise FlowNotSucceeded(self.id, self.name, self.state.value, self.record.reason)
        return self

    def _found(self, record: FlowRecord | None) -> FlowRecord:
        if record is None:
            raise UnknownFlow(self.id)
        return record

    def __repr__(self) -> str:
        return f"<FlowRun {self.id} {self.name} {self.state.value}>"


class FlowRuns:
    """What a program can ask about the flows of its store."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def get(self, flow_id: UUID | str) -> FlowRun:
        """The flow of this id; UnknownFlow when there is none."""
        known = as_id(flow_id)
        return self._run(known, self._client.run(self._client.store.flow(known)))

    async def aget(self, flow_id: UUID | str) -> FlowRun:
        """The flow of this id; UnknownFlow when there is none."""
        known = as_id(flow_id)
        return self._run(known, await self._client.arun(self._client.store.flow(known)))

    def list(
        self,
        *,
        name: str | None = None,
        state: str | Iterable[str] | None = None,
        limit: int = 100,
        before: UUID | str | None = None,
    ) -> list[FlowRun]:
        """Flows that match, newest first; for the next page pass the last one's id as `before`."""
        records = self._client.run(self._listing(name, state, limit, before))
        return [FlowRun(record, self._client) for record in records]

    async def alist(
        self,
        *,
        name: str | None = None,
        state: str | Iterable[str] | None = None,
        limit: int = 100,
        before: UUID | str | None = None,
    ) -> Iterable[FlowRun]:
        """Flows that match, newest first; see `list`."""
        records = await self._client.arun(self._listing(name, state, limit, before))
        return [FlowRun(record, self._client) for record in records]

    def _listing(
        self,
        name: str | None,
        state: str | Iterable[str] | None,
        limit: int,
        before: UUID | str | None,
    ) -> Operation[Any]:
        states = None if state is None else states_of(FlowState, state)
        cursor = None if before is None else as_id(before)
        return self._client.store.flows(page(limit), name, states, cursor)

    def _run(self, flow_id: UUID, record: FlowRecord | None) -> FlowRun:
        if record is None:
            raise UnknownFlow(flow_id)
        return FlowRun(record, self._client)


def _job_id(nodes: Iterable[NodeView], name: str, flow: str) -> UUID:
    known = []
    for node in nodes:
        if node.name == name and node.kind is NodeKind.JOB:
            return node.id
        known.append(node.name)
    raise InvalidFlow(
        f"flow {flow!r} has no node {name!r} that is one job; its nodes are {', '.join(known)}"
    )


def _deadline(timeout: Duration | None) -> float:
    if timeout is None:
        return float("inf")
    return time.monotonic() + parse_duration(timeout, "timeout").total_seconds()
