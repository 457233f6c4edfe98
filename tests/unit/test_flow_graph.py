"""The shape of a flow, and what follows from it."""

from __future__ import annotations

import pytest

from duly.errors import InvalidFlow
from duly.model.flow import Condition, Edge, FlowNode, NodeState, Rule
from duly.model.identifiers import new_id
from duly.policy.flow_graph import arranged
from duly.policy.flow_inputs import with_values
from duly.policy.flow_rules import Counted, counted

FLOW = new_id()


def graph(
    *edges: tuple[str, str], rules: dict[str, Rule] | None = None
) -> tuple[list[FlowNode], list[Edge]]:
    names = list(dict.fromkeys(name for edge in edges for name in edge))
    nodes = {
        name: FlowNode(
            id=new_id(),
            flow_id=FLOW,
            number=number,
            name=name,
            rule=(rules or {}).get(name, Rule.ALL_SUCCEEDED),
        )
        for number, name in enumerate(names)
    }
    return list(nodes.values()), [Edge(nodes[one].id, nodes[two].id) for one, two in edges]


def test_a_cycle_is_refused_and_its_path_named() -> None:
    with pytest.raises(InvalidFlow, match=r"clean >> load >> check >> clean$"):
        arranged(*graph(("in", "clean"), ("clean", "load"), ("load", "check"), ("check", "clean")))


def test_a_node_that_waits_for_itself() -> None:
    with pytest.raises(InvalidFlow, match="only >> only"):
        arranged(*graph(("only", "only")))


def test_a_chain_of_ten_thousand() -> None:
    nodes = arranged(*graph(*((f"n{place}", f"n{place + 1}") for place in range(10_000))))
    assert sum(node.waits_for for node in nodes) == 10_000


def test_what_handles_failures_is_spared_with_all_that_follows() -> None:
    nodes = arranged(
        *graph(
            ("a", "b"),
            ("a", "alarm"),
            ("alarm", "report"),
            ("b", "report"),
            rules={"alarm": Rule.ANY_FAILED},
        )
    )
    assert {node.name for node in nodes if node.spared} == {"alarm", "report"}


def test_a_failure_is_tolerated_where_another_may_succeed_in_its_place() -> None:
    edges = (("a", "use"), ("b", "use"), ("b", "log"))
    nodes = arranged(*graph(*edges, rules={"use": Rule.ANY_SUCCEEDED}))
    assert {node.name for node in nodes if node.tolerated} == {"a"}


@pytest.mark.parametrize(
    ("condition", "end", "expected"),
    [
        (Condition.SUCCEEDED, NodeState.SUCCEEDED, Counted.SUCCEEDED),
        (Condition.SUCCEEDED, NodeState.FAILED, Counted.FAILED),
        (Condition.SUCCEEDED, NodeState.CANCELLED, Counted.FAILED),
        (Condition.SUCCEEDED, NodeState.SKIPPED, Counted.SKIPPED),
        (Condition.FINISHED, NodeState.FAILED, Counted.SUCCEEDED),
        (Condition.FAILED, NodeState.FAILED, Counted.SUCCEEDED),
        (Condition.FAILED, NodeState.SUCCEEDED, Counted.SKIPPED),
    ],
)
def test_as_what_an_end_counts(condition: Condition, end: NodeState, expected: Counted) -> None:
    assert counted(condition, end) is expected


def test_values_are_put_into_arguments() -> None:
    assert with_values("{}", {"a": "[1]"}) == '{"a":[1]}'
    assert with_values('{"b":2}', {"a": "null"}) == '{"b":2,"a":null}'
    assert with_values('{"b":2}', {}) == '{"b":2}'
