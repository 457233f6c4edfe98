"""I11 Dependencies: children after their parents, flows that end, one result for each step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from uuid import UUID

from duly.model.flow import FlowRecord, NodeKind, NodeState, NodeView, Rule
from duly.model.job import JobRecord, State
from duly.model.journal import JournalEntry
from duly.model.step import StepKind, StepState
from duly.policy.flow_rules import ENDED
from duly.policy.states import FINAL
from duly.testing.evidence import Evidence, Finding
from duly.testing.history import Effect

EVERYBODY = frozenset({Rule.ALL_SUCCEEDED, Rule.ALL_FINISHED})


def dependencies(evidence: Evidence) -> Iterator[Finding]:
    """A child starts after its parents have ended; a recorded step is never run again."""
    members: dict[UUID, list[JobRecord]] = {}
    for job in evidence.jobs.values():
        if job.flow_id is not None:
            members.setdefault(job.flow_id, []).append(job)
    for flow in evidence.history.flows:
        nodes = evidence.history.nodes.get(flow.id, [])
        jobs = members.get(flow.id, [])
        yield from _order(evidence, nodes, jobs)
        yield from _ends(evidence, flow, nodes, jobs)
    yield from _steps(evidence)
    yield from _step_effects(evidence)


def _order(evidence: Evidence, nodes: list[NodeView], jobs: list[JobRecord]) -> Iterator[Finding]:
    named = {node.name: node for node in nodes}
    maps = [node for node in nodes if node.kind is NodeKind.MAP]
    singles = {node.id for node in nodes if node.kind is NodeKind.JOB}
    items = [job.id for job in jobs if job.id not in singles] if len(maps) == 1 else []
    for node in nodes:
        parents = [named[name] for name in node.parents]
        starts = items if maps == [node] else [node.id]
        for job_id in starts:
            for _, claim in evidence.claims(job_id):
                ended = [_ended(evidence, parent, items, claim) for parent in parents]
                enough = all(ended) if node.rule in EVERYBODY else not ended or any(ended)
                if not enough:
                    late = [
                        each.name
                        for each, is_over in zip(parents, ended, strict=True)
                        if not is_over
                    ]
                    message = f"node {node.name} started before {', '.join(late)} had ended"
                    yield Finding("I11", message, job_id)


def _ended(evidence: Evidence, parent: NodeView, items: list[UUID], claim: JournalEntry) -> bool:
    """Whether the parent had ended, for all that is known, when the child was claimed."""
    for job_id in items if parent.kind is NodeKind.MAP else [parent.id]:
        before = [
            entry for entry in evidence.journal.get(job_id, []) if entry.number < claim.number
        ]
        if before and before[-1].after not in FINAL:
            return False
    return True


def _ends(
    evidence: Evidence, flow: FlowRecord, nodes: list[NodeView], jobs: list[JobRecord]
) -> Iterator[Finding]:
    live = [job for job in jobs if job.state not in FINAL]
    if flow.finished_at is not None:
        for job in live:
            message = f"is {job.state}, and its flow {flow.name} has ended as {flow.state}"
            yield Finding("I11", message, job.id)
        for node in nodes:
            if node.state not in ENDED:
                message = f"node {node.name} is {node.state} in a flow that has ended"
                yield Finding("I11", message, node.id)
    elif evidence.history.settled and jobs and not live:
        message = f"flow {flow.name} is {flow.state} although all its jobs have ended"
        yield Finding("I11", message, jobs[0].id)
    elif evidence.history.settled and live and all(job.state is State.BLOCKED for job in live):
        waiting = {NodeState.HELD, NodeState.STALLED}
        if not any(node.state in waiting for node in nodes):
            message = f"waits in flow {flow.name}, in which nothing runs any more"
            yield Finding("I11", message, live[0].id)


def _steps(evidence: Evidence) -> Iterator[Finding]:
    steps = evidence.history.steps
    for (job_id, name, key), count in Counter(
        (step.job_id, step.name, step.key) for step in steps
    ).items():
        if count > 1:
            yield Finding("I11", f"step {name} {key} is recorded {count} times", job_id)
    taken = Counter((step.job_id, step.event_id) for step in steps if step.event_id is not None)
    for (job_id, event), count in taken.items():
        if count > 1:
            yield Finding("I11", f"got event {event} {count} times", job_id)
    for step in steps:
        started = step.kind is StepKind.JOB and step.child_id is not None
        if started and step.child_id not in evidence.jobs | evidence.journal:
            message = f"step {step.name} started job {step.child_id}, which is not stored"
            yield Finding("I11", message, step.job_id)


def _step_effects(evidence: Evidence) -> Iterator[Finding]:
    """By what the code noted: no step begins again after it was told that it is recorded.

    Not even under the token it was recorded under; but under an earlier one it may: somebody who
    has lost the job and has not noticed yet, whose record is refused.
    """
    stored = {
        (step.job_id, name): step.result
        for step in evidence.history.steps
        if step.state is StepState.DONE
        for name in (step.name, f"{step.name}:{step.key}")
    }
    undone = {step.job_id for step in evidence.history.steps if step.kind is StepKind.UNDO}
    recorded: dict[tuple[UUID, str, int], int] = {}
    for effect in evidence.history.effects or ():
        if effect.step is None:
            continue
        # What compensations have undone is done again by a replay.
        generation = _generation(evidence, effect) if effect.job_id in undone else 1
        which = (effect.job_id, effect.step, generation)
        if which in recorded and effect.token >= recorded[which]:
            message = f"step {effect.step} ran again under token {effect.token}"
            yield Finding("I11", f"{message}, after it was recorded", effect.job_id)
        if effect.recorded:
            recorded.setdefault(which, effect.token)
            known = stored.get((effect.job_id, effect.step), effect.result)
            if effect.result is not None and known != effect.result:
                message = f"step {effect.step} returned {effect.result}, recorded is {known}"
                yield Finding("I11", message, effect.job_id)


def _generation(evidence: Evidence, effect: Effect) -> int:
    """The generation of the job in which its code ran, by the journal."""
    for _, claim in evidence.claims(effect.job_id):
        if claim.token == effect.token:
            return claim.generation
    return 1
