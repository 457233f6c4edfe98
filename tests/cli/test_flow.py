"""Flows on the command line."""

from __future__ import annotations

import pytest

from duly.model.flow import FailurePolicy, FlowRecord, FlowState
from duly.model.identifiers import new_id
from tests.cli.driving import Place
from tests.cli.test_documentation import TEXT
from tests.support.flows import FlowScene


@pytest.fixture
def flow(anyplace: Place) -> FlowScene:
    """extract >> each item >> load, with one item broken."""
    made = FlowScene(anyplace.scene, "etl")
    made.node("extract").map("score", over="extract").node("load", "score")
    return made


def test_from_the_list_to_a_retry(anyplace: Place, flow: FlowScene) -> None:
    assert "no such flows" in anyplace.good("flow", "list").err
    flow.submit(FailurePolicy.CONTINUE)
    flow.succeed("extract", result="[1,2]")
    first, second = flow.jobs()
    anyplace.scene.kill(first)
    anyplace.scene.succeed(second)
    listed = anyplace.good("flow", "list", "--name", "etl", "--state", "failed", "--json").json
    assert [each["id"] for each in listed["flows"]] == [str(flow.id)]
    assert (listed["flows"][0]["succeeded"], listed["flows"][0]["total"]) == (2, 4)
    assert listed["next"] is None
    assert "2/4" in anyplace.good("flow", "list").out
    shown = anyplace.good("flow", "show", str(flow.id)[:13]).out
    assert "1/2, 1 failed" in shown
    assert "score failed" in shown
    nodes = anyplace.good("flow", "show", flow.id, "--json").json["nodes"]
    assert [(node["name"], node["state"]) for node in nodes] == [
        ("extract", "succeeded"),
        ("score", "failed"),
        ("load", "cancelled"),
    ]
    assert "goes on" in anyplace.good("flow", "retry", flow.id).err
    anyplace.scene.advance(60)
    (again,) = flow.jobs()
    assert again.id == first.id
    assert anyplace.duly("flow", "retry", flow.id).code == 1
    anyplace.scene.succeed(again)
    flow.succeed("load")
    assert flow.record().state is FlowState.SUCCEEDED


def test_cancel_and_resume(anyplace: Place, flow: FlowScene) -> None:
    flow.submit(FailurePolicy.PAUSE)
    assert anyplace.duly("flow", "resume", flow.id).code == 1
    flow.kill("extract")
    assert anyplace.good("flow", "resume", flow.id, "--json").json == {
        "flow": str(flow.id),
        "result": "done",
    }
    assert flow.record().state is FlowState.FAILED
    other = FlowScene(anyplace.scene, "other").node("only").submit()
    assert "is cancelled" in anyplace.good("flow", "cancel", other.id, "--reason", "no").err
    assert other.record().reason == "no"
    assert anyplace.duly("flow", "cancel", other.id).code == 1


def test_a_flow_that_is_not_there(place: Place) -> None:
    for verb in ("show", "cancel", "retry", "resume"):
        answer = place.duly("flow", verb, new_id())
        assert answer.code == 2
        assert "no flow" in answer.err
    assert "no flow's id begins with" in place.duly("flow", "show", "0123456789").err


def test_every_key_of_a_flow_is_documented() -> None:
    for name in FlowRecord.__struct_fields__:
        assert f"`{name}`" in TEXT
