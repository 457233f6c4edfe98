"""A node runs when its rule says so, in the transaction that ends the last that decides."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from duly.model.flow import Condition, FailurePolicy, FlowChange, FlowState, NodeState, Rule
from duly.model.identifiers import new_id
from duly.model.job import Delivery, State
from duly.model.query import Cancellation, Replay
from duly.model.settlement import release, retry, succeed
from duly.store.protocol import Store
from tests.support.flows import FlowScene, died
from tests.support.stores import Scene, failure

BLOCKED, RELEASED, HELD = NodeState.BLOCKED, NodeState.RELEASED, NodeState.HELD
SUCCEEDED, FAILED = NodeState.SUCCEEDED, NodeState.FAILED
CANCELLED, SKIPPED = NodeState.CANCELLED, NodeState.SKIPPED
STALLED = NodeState.STALLED


@pytest.fixture
def flow(scene: Scene) -> FlowScene:
    """A flow without any nodes yet."""
    return FlowScene(scene)


def diamond(flow: FlowScene) -> FlowScene:
    """extract >> [clean, enrich] >> load"""
    return (flow.node("extract").node("clean", "extract").node("enrich", "extract")).node(
        "load", "clean", "enrich"
    )


def test_a_diamond_runs_in_order(scene: Scene, flow: FlowScene) -> None:
    diamond(flow).submit()
    assert flow.record().state is FlowState.RUNNING
    assert scene.state(flow.ids["load"]) is State.BLOCKED
    flow.succeed("extract")
    (clean, enrich) = flow.take("clean", "enrich")
    scene.succeed(clean)
    assert flow.states()["load"] is BLOCKED
    assert flow.jobs() == []
    scene.succeed(enrich)
    scene.advance(5)
    flow.succeed("load")
    record = flow.record()
    assert (record.state, record.finished_at) == (FlowState.SUCCEEDED, scene.now)
    assert (record.total, record.succeeded, record.open) == (4, 4, 0)
    assert set(flow.states().values()) == {SUCCEEDED}


def test_both_parents_in_one_batch_release_the_child_once(flow: FlowScene) -> None:
    diamond(flow).submit()
    flow.succeed("extract")
    flow.succeed("clean", "enrich")
    (load,) = flow.take("load")
    assert load.token == 1


def test_a_released_job_is_due_from_then_on(scene: Scene, flow: FlowScene) -> None:
    flow.node("first").node("second", "first").node("late", "first", delay=60.0).submit()
    scene.advance(100)
    flow.succeed("first")
    assert scene.get(flow.ids["second"]).run_at == scene.now
    assert scene.get(flow.ids["late"]).run_at == scene.now + timedelta(seconds=60)


def test_a_retry_or_a_release_ends_nothing(scene: Scene, flow: FlowScene) -> None:
    flow.node("first", max_attempts=3).node("second", "first").submit()
    (job,) = flow.take("first")
    scene.settle(retry(job.id, job.token, timedelta(0), failure()))
    (job,) = flow.take("first")
    scene.settle(release(job.id, job.token))
    assert flow.states() == {"first": RELEASED, "second": BLOCKED}
    flow.succeed("first")
    flow.take("second")


def test_a_success_that_does_not_name_its_flow_is_not_taken(scene: Scene, flow: FlowScene) -> None:
    flow.node("first").node("second", "first").submit()
    (job,) = flow.take("first")
    landed = scene.settle(succeed(job.id, job.token, "1"))
    # An engine may move the flow on all the same; it must not end the job alone.
    assert landed == [flow.states()["second"] is RELEASED]
    assert (scene.state(job.id) is State.SUCCEEDED) == landed[0]


def test_a_stale_success_moves_nothing(scene: Scene, flow: FlowScene) -> None:
    flow.node("first").node("second", "first").submit()
    (job,) = flow.take("first")
    scene.crash(job)
    assert scene.settle(succeed(job.id, job.token, "1", job.flow_id)) == [False]
    assert flow.states()["second"] is BLOCKED


@pytest.mark.parametrize("end", ["dead", "cancelled", "asked", "expired", "lost"])
def test_every_bad_end_counts(scene: Scene, flow: FlowScene, end: str) -> None:
    delivery: dict[str, Any] = {"delivery": Delivery.AT_MOST_ONCE} if end == "lost" else {}
    expires: dict[str, Any] = {"expires_after": timedelta(seconds=10)} if end == "expired" else {}
    flow.node("first", **delivery, **expires).node("second", "first")
    flow.node("alarm", "first", rule=Rule.ANY_FAILED).submit()
    if end == "dead":
        flow.kill("first")
    elif end == "cancelled":
        assert scene.cancel(flow.ids["first"]) == [Cancellation.CANCELLED]
    elif end == "asked":
        (job,) = flow.take("first")
        assert scene.cancel(job.id) == [Cancellation.REQUESTED]
        scene.settle(release(job.id, job.token))
    elif end == "expired":
        scene.advance(11)
        scene.expire()
    else:
        (job,) = flow.take("first")
        scene.begin(job)
        scene.crash(job)
    expected = FAILED if end in ("dead", "lost") else CANCELLED
    assert flow.states() == {"first": expected, "second": CANCELLED, "alarm": RELEASED}
    assert scene.get(flow.ids["second"]).reason == "first failed"
    flow.succeed("alarm")
    assert (flow.record().state, flow.record().reason) == (FlowState.FAILED, "first failed")


def test_an_expired_job_of_a_flow_is_not_claimed(scene: Scene, flow: FlowScene) -> None:
    flow.node("first", expires_after=timedelta(seconds=10)).node("second", "first").submit()
    other = scene.submit()
    scene.advance(11)
    assert [job.id for job in flow.jobs()] == [other.id]
    scene.expire()
    assert flow.states() == {"first": CANCELLED, "second": CANCELLED}


def test_a_claim_ahead_judges_by_the_time_of_each_job_of_a_flow_whether_it_has_expired(
    scene: Scene, flow: FlowScene
) -> None:
    due = scene.now + timedelta(seconds=1)
    flow.node("inside", run_at=due, expires_at=due + timedelta(seconds=1))
    flow.node("outside", run_at=due, expires_at=due).submit(FailurePolicy.CONTINUE)
    taken = scene.claim(scene.hire(), due_by=due + timedelta(seconds=5))
    assert [job.id for job in taken] == [flow.ids["inside"]]
    scene.advance(1)
    scene.expire()
    assert flow.states() == {"inside": RELEASED, "outside": CANCELLED}


def test_a_blocked_node_can_be_cancelled(scene: Scene, flow: FlowScene) -> None:
    diamond(flow).submit(FailurePolicy.CONTINUE)
    assert scene.cancel(flow.ids["clean"]) == [Cancellation.CANCELLED]
    assert flow.states()["load"] is CANCELLED
    flow.succeed("extract")
    flow.succeed("enrich")
    assert flow.record().state is FlowState.FAILED
    assert (flow.record().succeeded, flow.record().cancelled) == (2, 2)


@pytest.mark.parametrize(
    ("rule", "good", "expected"),
    [
        (Rule.ALL_SUCCEEDED, 2, RELEASED),
        (Rule.ALL_SUCCEEDED, 1, CANCELLED),
        (Rule.ALL_FINISHED, 0, RELEASED),
        (Rule.ALL_FINISHED, 2, RELEASED),
        (Rule.ANY_FAILED, 1, RELEASED),
        (Rule.ANY_FAILED, 2, SKIPPED),
        (Rule.ANY_SUCCEEDED, 1, RELEASED),
        (Rule.ANY_SUCCEEDED, 0, CANCELLED),
    ],
)
def test_rules(scene: Scene, flow: FlowScene, rule: Rule, good: int, expected: NodeState) -> None:
    flow.node("one").node("two").node("last", "one", "two", rule=rule)
    flow.submit(FailurePolicy.CONTINUE)
    jobs = flow.take("one", "two")
    scene.settle(
        *(
            succeed(job.id, job.token, None, job.flow_id) if place < good else died(job)
            for place, job in enumerate(jobs)
        )
    )
    assert flow.states()["last"] is expected


def test_any_rules_do_not_wait_for_the_others(scene: Scene, flow: FlowScene) -> None:
    flow.node("one").node("two")
    flow.node("lucky", "one", "two", rule=Rule.ANY_SUCCEEDED)
    flow.node("alarm", "one", "two", rule=Rule.ANY_FAILED).submit(FailurePolicy.CONTINUE)
    one, two = flow.take("one", "two")
    scene.succeed(one)
    assert (flow.states()["lucky"], flow.states()["alarm"]) == (RELEASED, BLOCKED)
    flow.succeed("lucky")
    scene.kill(two)
    flow.succeed("alarm")
    assert flow.record().open == 0


def test_an_edge_can_ask_for_failure_or_for_any_end(scene: Scene, flow: FlowScene) -> None:
    flow.node("first").node("repair", "first", on=Condition.FAILED)
    flow.node("log", "first", on=Condition.FINISHED).submit()
    flow.kill("first")
    flow.take("repair", "log")
    other = FlowScene(scene, "other")
    other.node("first").node("repair", "first", on=Condition.FAILED).submit()
    other.succeed("first")
    assert other.states()["repair"] is SKIPPED
    assert other.record().state is FlowState.SUCCEEDED


def test_a_failure_that_another_makes_good_is_tolerated(flow: FlowScene) -> None:
    flow.node("mirror1").node("mirror2", delay=5)
    flow.node("use", "mirror1", "mirror2", rule=Rule.ANY_SUCCEEDED).submit()
    one, two = flow.take("mirror1", "mirror2")
    flow.scene.kill(one)
    assert flow.record().state is FlowState.RUNNING
    flow.scene.succeed(two)
    flow.succeed("use")
    assert flow.record().state is FlowState.SUCCEEDED


def test_cancel_the_rest_spares_what_handles_failures(scene: Scene, flow: FlowScene) -> None:
    flow.node("bad").node("running").node("pending", run_at=scene.now + timedelta(hours=1))
    flow.node("after", "running").node("cleanup", "bad", "running", rule=Rule.ALL_FINISHED)
    flow.node("report", "cleanup").submit()
    bad, running = flow.take("bad", "running")
    scene.kill(bad)
    assert flow.record().state is FlowState.FAILING
    assert flow.states() == {
        "bad": FAILED,
        "running": RELEASED,
        "pending": CANCELLED,
        "after": CANCELLED,
        "cleanup": BLOCKED,
        "report": BLOCKED,
    }
    assert scene.get(running.id).cancel_requested_at == scene.now
    scene.settle(release(running.id, running.token))
    flow.succeed("cleanup")
    flow.succeed("report")
    record = flow.record()
    assert record.state is FlowState.FAILED
    assert (record.succeeded, record.failed, record.cancelled) == (2, 1, 3)


def test_continue_goes_on_where_it_can(flow: FlowScene) -> None:
    flow.node("bad").node("good").node("after_bad", "bad").node("after_good", "good")
    flow.node("last", "after_bad", "after_good").submit(FailurePolicy.CONTINUE)
    flow.scene.kill(flow.take("bad", "good")[0])
    assert flow.states()["last"] is CANCELLED
    assert flow.scene.get(flow.ids["last"]).reason == "bad failed"
    assert flow.record().state is FlowState.RUNNING


def test_pause_waits_for_a_word(scene: Scene, flow: FlowScene) -> None:
    flow.node("bad").node("good").node("after_bad", "bad").node("after_good", "good")
    flow.submit(FailurePolicy.PAUSE)
    bad, good = flow.take("bad", "good")
    scene.kill(bad)
    scene.succeed(good)
    assert flow.record().state is FlowState.PAUSED
    assert flow.states() == {
        "bad": STALLED,
        "good": SUCCEEDED,
        "after_bad": BLOCKED,
        "after_good": HELD,
    }
    assert flow.jobs() == []
    assert flow.retry() is FlowChange.DONE
    flow.succeed("bad", "after_good")
    flow.succeed("after_bad")
    assert flow.record().state is FlowState.SUCCEEDED


def test_a_paused_flow_can_go_on_without_the_failed_part(flow: FlowScene) -> None:
    flow.node("bad").node("good").node("after_bad", "bad").node("after_good", "good")
    flow.submit(FailurePolicy.PAUSE)
    bad, good = flow.take("bad", "good")
    flow.scene.kill(bad)
    flow.scene.succeed(good)
    assert flow.resume() is FlowChange.DONE
    assert flow.resume() is FlowChange.NOTHING
    assert flow.states()["after_bad"] is CANCELLED
    flow.succeed("after_good")
    assert flow.record().state is FlowState.FAILED


def test_retry_runs_the_failed_part_only(scene: Scene, flow: FlowScene) -> None:
    flow.node("good").node("bad", "good").node("sibling", "good").node("load", "bad", "sibling")
    flow.node("report", "load", rule=Rule.ALL_FINISHED).submit()
    flow.succeed("good")
    bad, sibling = flow.take("bad", "sibling")
    scene.settle(died(bad))
    scene.settle(release(sibling.id, sibling.token))
    flow.succeed("report")
    assert flow.record().state is FlowState.FAILED
    assert flow.retry() is FlowChange.DONE
    assert flow.record().state is FlowState.RUNNING
    assert flow.states() == {
        "good": SUCCEEDED,
        "bad": RELEASED,
        "sibling": RELEASED,
        "load": BLOCKED,
        "report": BLOCKED,
    }
    again = scene.get(bad.id)
    assert (again.state, again.generation, again.attempt) == (State.PENDING, 2, 0)
    assert again.token == bad.token
    flow.succeed("bad", "sibling")
    flow.succeed("load")
    flow.succeed("report")
    record = flow.record()
    assert (record.state, record.total, record.succeeded) == (FlowState.SUCCEEDED, 5, 5)
    assert (record.failed, record.cancelled, record.failures) == (0, 0, 0)
    assert flow.retry() is FlowChange.NOTHING


@pytest.mark.parametrize("policy", FailurePolicy)
def test_a_retry_waits_for_what_handles_the_failure(
    scene: Scene, flow: FlowScene, policy: FailurePolicy
) -> None:
    flow.node("bad").node("load", "bad").node("end", "load", rule=Rule.ALL_FINISHED)
    flow.submit(policy=policy)
    (bad,) = flow.take("bad")
    scene.settle(died(bad))
    if policy is FailurePolicy.PAUSE:
        flow.resume()
    (end,) = flow.take("end")
    assert flow.retry() is FlowChange.NOTHING
    assert scene.replay(bad.id) == [Replay.FLOW_ENDING]
    scene.settle(release(end.id, end.token))
    assert flow.retry() is FlowChange.NOTHING
    flow.succeed("end")
    assert flow.record().state is FlowState.FAILED
    assert flow.retry() is FlowChange.DONE
    assert flow.states() == {"bad": RELEASED, "load": BLOCKED, "end": BLOCKED}
    flow.succeed("bad")
    flow.succeed("load")
    flow.succeed("end")
    assert flow.record().state is FlowState.SUCCEEDED


def test_replaying_a_dead_node_continues_from_there(scene: Scene, flow: FlowScene) -> None:
    diamond(flow).submit()
    flow.succeed("extract")
    clean, enrich = flow.take("clean", "enrich")
    scene.kill(clean)
    assert scene.replay(clean.id) == [Replay.FLOW_ENDING]
    scene.settle(release(enrich.id, enrich.token))
    assert flow.record().state is FlowState.FAILED
    assert scene.replay(clean.id, arguments='{"a":2}') == [Replay.REPLAYED]
    assert scene.get(clean.id).arguments == '{"a":2}'
    assert scene.get(enrich.id).arguments == "{}"
    flow.succeed("clean", "enrich")
    flow.succeed("load")
    assert flow.record().state is FlowState.SUCCEEDED


def test_cancelling_a_flow(scene: Scene, flow: FlowScene) -> None:
    diamond(flow).node("cleanup", "load", rule=Rule.ALL_FINISHED).submit()
    (extract,) = flow.take("extract")
    assert flow.cancel() is FlowChange.DONE
    assert flow.record().state is FlowState.CANCELLING
    assert scene.get(extract.id).cancel_requested_at == scene.now
    assert flow.states()["load"] is CANCELLED
    scene.settle(release(extract.id, extract.token))
    flow.succeed("cleanup")
    assert flow.record().state is FlowState.CANCELLED
    assert flow.cancel() is FlowChange.NOTHING


def test_cancelling_twice_spares_nothing(flow: FlowScene) -> None:
    flow.node("first").node("cleanup", "first", rule=Rule.ALL_FINISHED).submit()
    flow.cancel()
    assert flow.states()["cleanup"] is RELEASED
    flow.cancel()
    assert flow.record().state is FlowState.CANCELLED


def test_a_cancelled_flow_can_be_retried(flow: FlowScene) -> None:
    diamond(flow).submit()
    flow.cancel()
    assert flow.record().state is FlowState.CANCELLED
    assert flow.retry() is FlowChange.DONE
    flow.succeed("extract")
    flow.succeed("clean", "enrich")
    flow.succeed("load")
    assert flow.record().state is FlowState.SUCCEEDED


def test_results_are_passed_on(scene: Scene, flow: FlowScene) -> None:
    flow.node("one").node("two").node(
        "sum", "one", "two", gets={"first": "one", "all": ["one", "two"]}
    ).submit()
    flow.succeed("one", "two", result='{"n":1}')
    (job,) = flow.take("sum")
    assert flow.inputs(job) == [{"first": '{"n":1}', "all": '[{"n":1},{"n":1}]'}]


def test_the_result_of_a_failed_parent_is_null(flow: FlowScene) -> None:
    flow.node("one").node("log", "one", rule=Rule.ALL_FINISHED, gets={"got": "one"}).submit()
    flow.kill("one")
    assert flow.inputs(*flow.take("log")) == [{"got": "null"}]


def test_a_map_over_a_result(scene: Scene, flow: FlowScene) -> None:
    flow.node("list").map("each", over="list")
    flow.node("sum", "each", gets={"all": "each"}).submit()
    flow.succeed("list", result='[10,{"a":"b"},null]')
    jobs = sorted(flow.jobs(), key=lambda job: job.id)
    assert [job.arguments for job in jobs] == ['{"item":10}', '{"item":{"a":"b"}}', '{"item":null}']
    assert flow.record().total == 5
    for place, job in reversed(list(enumerate(jobs))):
        assert flow.states()["sum"] is BLOCKED
        scene.succeed(job, str(place))
    (total,) = flow.take("sum")
    assert flow.inputs(total) == [{"all": "[0,1,2]"}]
    scene.succeed(total)
    assert (flow.record().state, flow.record().succeeded) == (FlowState.SUCCEEDED, 5)


def test_a_map_over_nothing_is_done_at_once(flow: FlowScene) -> None:
    flow.node("list").map("each", over="list").node("sum", "each", gets={"all": "each"}).submit()
    flow.succeed("list", result="[]")
    assert flow.inputs(*flow.take("sum")) == [{"all": "[]"}]


def test_a_map_over_what_is_no_list_fails(flow: FlowScene) -> None:
    flow.node("list").map("each", over="list").node("sum", "each").submit()
    flow.succeed("list", result='{"a":1}')
    assert flow.states() == {"list": SUCCEEDED, "each": FAILED, "sum": CANCELLED}
    (view,) = [
        view
        for view in flow.scene.store.run(flow.scene.store.flow_nodes(flow.id))
        if view.name == "each"
    ]
    assert view.reason == "list did not return a list to map over"


def test_a_map_over_given_values_and_over_a_map(flow: FlowScene) -> None:
    flow.map("first", values="[1,2]").map("second", over="first")
    flow.node("sum", "second", gets={"all": "second"}).submit()
    for job in sorted(flow.jobs(), key=lambda job: job.id):
        flow.scene.succeed(job, job.arguments)
    second = sorted(flow.jobs(), key=lambda job: job.id)
    assert [job.arguments for job in second] == ['{"item":{"item":1}}', '{"item":{"item":2}}']
    for job in second:
        flow.scene.succeed(job, "7")
    assert flow.inputs(*flow.take("sum")) == [{"all": "[7,7]"}]


def test_retry_runs_only_the_failed_items_of_a_map(scene: Scene, flow: FlowScene) -> None:
    flow.map("each", values="[1,2,3,4]").node("sum", "each", gets={"all": "each"})
    flow.submit(FailurePolicy.CONTINUE)
    jobs = sorted(flow.jobs(), key=lambda job: job.id)
    scene.settle(
        *(
            died(job) if place == 2 else succeed(job.id, job.token, str(place), job.flow_id)
            for place, job in enumerate(jobs)
        )
    )
    assert flow.states() == {"each": FAILED, "sum": CANCELLED}
    assert flow.record().state is FlowState.FAILED
    assert flow.retry() is FlowChange.DONE
    (again,) = flow.jobs()
    assert again.id == jobs[2].id
    scene.succeed(again, "2")
    assert flow.inputs(*flow.take("sum")) == [{"all": "[0,1,2,3]"}]


def test_a_retry_minds_items_whose_failure_was_tolerated(scene: Scene, flow: FlowScene) -> None:
    flow.map("each", values="[1,2]").node("beside").node("any", "each", rule=Rule.ANY_SUCCEEDED)
    flow.submit(FailurePolicy.CONTINUE)
    scene.settle(*(died(job) for job in flow.jobs()))
    assert flow.record().state is FlowState.FAILED
    assert flow.retry() is FlowChange.DONE
    assert len(flow.jobs()) == 3


def test_replaying_one_node_leaves_failed_items_of_a_map_as_they_are(
    scene: Scene, flow: FlowScene
) -> None:
    flow.map("each", values="[1,2]").node("beside").node("any", "each", rule=Rule.ANY_SUCCEEDED)
    flow.submit(FailurePolicy.CONTINUE)
    scene.settle(*(died(job) for job in flow.jobs()))
    assert scene.replay(flow.ids["beside"]) == [Replay.REPLAYED]
    flow.succeed("beside")
    assert flow.states() == {"each": FAILED, "beside": SUCCEEDED, "any": CANCELLED}
    assert flow.record().state is FlowState.FAILED


def test_submitting_again_changes_nothing(scene: Scene, flow: FlowScene) -> None:
    diamond(flow).submit()
    flow.succeed("extract")
    record, created = scene.store.run(scene.store.submit_flow(flow.draft(), scene.now))
    assert (created, record) == (False, flow.record())
    assert flow.states()["extract"] is SUCCEEDED


def test_no_more_flows_of_a_name_are_active_than_allowed(scene: Scene) -> None:
    first, second, third = (FlowScene(scene).node("only").node("end", "only") for _ in range(3))
    for flow in (first, second, third):
        flow.submit(max_active=1)
    assert [flow.record().state for flow in (first, second, third)] == [
        FlowState.RUNNING,
        FlowState.QUEUED,
        FlowState.QUEUED,
    ]
    assert second.cancel() is FlowChange.DONE
    assert second.record().state is FlowState.CANCELLED
    first.succeed("only")
    first.succeed("end")
    assert third.record().state is FlowState.RUNNING
    third.succeed("only")
    third.succeed("end")
    assert third.record().state is FlowState.SUCCEEDED


def test_a_flow_that_is_retried_waits_for_its_turn(scene: Scene) -> None:
    failed, running, queued = (FlowScene(scene).node("only").node("end", "only") for _ in range(3))
    failed.submit(max_active=1)
    failed.kill("only")
    running.submit(max_active=1)
    queued.submit(max_active=1)
    assert failed.retry() is FlowChange.DONE
    assert failed.record().state is FlowState.QUEUED
    assert failed.states()["only"] is HELD
    assert failed.retry() is FlowChange.NOTHING
    running.succeed("only")
    running.succeed("end")
    assert [flow.record().state for flow in (failed, queued)] == [
        FlowState.RUNNING,
        FlowState.QUEUED,
    ]
    failed.succeed("only")
    failed.succeed("end")
    assert failed.record().state is FlowState.SUCCEEDED
    assert queued.record().state is FlowState.RUNNING


def test_a_replay_in_a_flow_that_waits_for_its_turn_does_not_start_it(scene: Scene) -> None:
    failed, running = (FlowScene(scene).node("one").node("two") for _ in range(2))
    failed.submit(FailurePolicy.CONTINUE, max_active=1)
    failed.kill("one", "two")
    running.submit(max_active=1)
    for name in ("one", "two"):
        replay = scene.store.replay([failed.ids[name]], None, scene.now)
        assert scene.store.run(replay) == [Replay.REPLAYED]
        assert failed.record().state is FlowState.QUEUED
    running.cancel()
    failed.succeed("one", "two")
    assert failed.record().state is FlowState.SUCCEEDED


def test_room_is_found_by_whoever_looks(scene: Scene) -> None:
    first, second = (FlowScene(scene).node("only") for _ in range(2))
    first.submit(max_active=1)
    second.submit(max_active=1)
    assert scene.store.run(scene.store.start_queued_flows(scene.now)) == 0
    first.cancel()
    assert second.record().state is FlowState.RUNNING


def test_a_long_chain_fails_at_once(flow: FlowScene) -> None:
    flow.node("n0")
    for place in range(1, 300):
        flow.node(f"n{place}", f"n{place - 1}")
    flow.submit(FailurePolicy.CONTINUE)
    flow.kill("n0")
    assert flow.record().state is FlowState.FAILED
    assert flow.record().cancelled == 299
    assert flow.scene.get(flow.ids["n299"]).reason == "n0 failed"


def test_flows_are_listed_and_forgotten(scene: Scene) -> None:
    flows = [FlowScene(scene, name).node("only") for name in ("a", "b", "a")]
    for flow in flows:
        flow.submit()
    store: Store = scene.store
    names = [flow.name for flow in store.run(store.flows(10))]
    assert names == ["a", "b", "a"]
    assert [each.id for each in store.run(store.flows(10, name="a"))] == [
        flows[2].id,
        flows[0].id,
    ]
    assert [each.id for each in store.run(store.flows(1, before=flows[2].id))] == [flows[1].id]
    flows[0].cancel()
    done = store.run(store.flows(10, states=frozenset({FlowState.CANCELLED})))
    assert [each.id for each in done] == [flows[0].id]
    later = scene.advance(60)
    assert store.run(store.purge_flows(later, 10)) == 1
    assert store.run(store.flow(flows[0].id)) is None
    assert store.run(store.flow_nodes(flows[0].id)) == []
    assert store.run(store.flow(new_id())) is None
    assert store.run(store.cancel_flow(new_id())) is FlowChange.UNKNOWN


def test_in_the_caller_s_transaction(scene: Scene, flow: FlowScene) -> None:
    store = scene.store
    diamond(flow)
    with suppress(KeyError), store.transaction() as connection:
        store.carry(connection).run(store.submit_flow(flow.draft(), scene.now))
        raise KeyError
    assert store.run(store.flow(flow.id)) is None
    with store.transaction() as connection:
        store.carry(connection).run(store.submit_flow(flow.draft(), scene.now))
    flow.take("extract")
