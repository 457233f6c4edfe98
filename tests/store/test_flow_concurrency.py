"""Many at once on one flow: what waits for all fires once, nothing deadlocks, nothing is lost."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pytest

from duly.model.flow import FailurePolicy, FlowState, NodeState, Rule
from duly.model.job import JobRecord, State
from duly.model.settlement import Settlement, release, succeed
from duly.policy.flow_rules import ENDED, FINISHED
from tests.support.flows import FlowScene, died
from tests.support.stores import Scene

WIDTH = int(os.environ.get("DULY_FLOW_WIDTH", "2000"))
PATIENCE = 60.0
T = TypeVar("T")


def at_once(acts: Sequence[Callable[[], T]]) -> list[T]:
    """Run all in threads that start together; answers in order."""
    start = threading.Barrier(len(acts))

    def run(act: Callable[[], T]) -> T:
        start.wait(PATIENCE)
        return act()

    with ThreadPoolExecutor(len(acts)) as threads:
        futures = [threads.submit(run, act) for act in acts]
        return [future.result(4 * PATIENCE) for future in futures]


def settle_in_bites(scene: Scene, jobs: Sequence[JobRecord], chance: random.Random) -> None:
    """Let all succeed, some in one transaction and some in another."""
    rest = list(jobs)
    while rest:
        bite = [rest.pop() for _ in range(min(len(rest), chance.randint(1, 60)))]
        landed = scene.settle(*(succeed(job.id, job.token, "1", job.flow_id) for job in bite))
        assert all(landed)


@pytest.mark.parametrize("mapped", [False, True], ids=["static", "mapped"])
def test_a_wide_fan_in_fires_once(scene: Scene, mapped: bool) -> None:
    flow = FlowScene(scene, "wide")
    if mapped:
        flow.node("list").map("each", over="list")
        flow.node("last", "each", gets={"all": "each"}).submit()
        flow.succeed("list", result=f"[{','.join('1' * WIDTH)}]")
    else:
        for place in range(WIDTH):
            flow.node(f"n{place}")
        flow.node("last", *(f"n{place}" for place in range(WIDTH))).submit()
    jobs = flow.jobs(WIDTH + 1)
    assert len(jobs) == WIDTH
    random.Random(5).shuffle(jobs)
    hands = 8
    at_once(
        [
            lambda hand=hand: settle_in_bites(scene, jobs[hand::hands], random.Random(hand))  # type: ignore[misc]
            for hand in range(hands)
        ]
    )
    (last,) = flow.take("last")
    assert last.token == 1
    if mapped:
        assert flow.inputs(last) == [{"all": f"[{','.join('1' * WIDTH)}]"}]
    scene.succeed(last)
    record = flow.record()
    assert (record.state, record.open) == (FlowState.SUCCEEDED, 0)
    assert record.succeeded == record.total == WIDTH + (2 if mapped else 1)


def test_a_storm_over_small_flows(scene: Scene) -> None:
    """Successes, deaths, cancellations, crashes and retries all at once: every flow ends, and its
    counters are what its nodes say."""
    policies = (FailurePolicy.CANCEL, FailurePolicy.CONTINUE)
    flows = []
    for number in range(40):
        flow = FlowScene(scene, f"flow{number}").node("a").node("b", "a").node("c", "a")
        flow.node("d", "b", "c").node("e", "d", "b", rule=Rule.ALL_FINISHED)
        flow.map("f", "c", values="[1,2,3]").node("g", "f", "e", rule=Rule.ANY_SUCCEEDED)
        flows.append(flow.submit(policies[number % 2]))

    def end(job: JobRecord, chance: random.Random) -> Settlement:
        luck = chance.random()
        if luck < 0.75:
            return succeed(job.id, job.token, "1", job.flow_id)
        return died(job) if luck < 0.9 else release(job.id, job.token)

    def work(seed: int) -> None:
        chance = random.Random(seed)
        empty = 0
        while empty < 20:
            holder = scene.hire()
            jobs = scene.claim(holder, 7)
            empty = 0 if jobs else empty + 1
            if jobs and chance.random() < 0.15:
                scene.reap(holder, expired_only=False)
            elif jobs:
                scene.settle(*(end(job, chance) for job in jobs))

    def disturb(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(60):
            flow = chance.choice(flows)
            act = chance.random()
            if act < 0.4:
                scene.cancel(*chance.sample(sorted(flow.ids.values()), 2))
            elif act < 0.6:
                flow.cancel()
            else:
                flow.retry()

    at_once([lambda seed=seed: work(seed) for seed in range(5)] + [lambda: disturb(77)])
    for flow in flows:
        # What is left of the last retries.
        while flow.record().state not in FINISHED:
            jobs = scene.claim(scene.hire(), 1000)
            assert jobs, (flow.record(), flow.states())
            scene.settle(*(succeed(job.id, job.token, "1", job.flow_id) for job in jobs))
    for flow in flows:
        record = flow.record()
        states = flow.states()
        assert set(states.values()) <= ENDED
        assert record.open == 0
        ended = record.succeeded + record.failed + record.cancelled + record.skipped
        assert ended == record.total
        for name, node_id in flow.ids.items():
            if name != "f":
                assert (scene.state(node_id) is State.SUCCEEDED) == (
                    states[name] is NodeState.SUCCEEDED
                )
                assert (scene.state(node_id) is State.DEAD) == (states[name] is NodeState.FAILED)
