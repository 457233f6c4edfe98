"""Building a flow in code: `with app.flow("etl") as flow:`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextvars import Token
from types import TracebackType
from typing import Any, TypeVar
from uuid import UUID

import msgspec

from duly.client.client import Client
from duly.client.flow_checks import check_results
from duly.client.flow_run import FlowRun
from duly.client.prepared import Builder, Each, Group, Prepared, building
from duly.errors import InvalidFlow, InvalidOption
from duly.model.flow import (
    Binding,
    Condition,
    Edge,
    Expansion,
    FailurePolicy,
    FlowDraft,
    FlowNode,
    NodeKind,
    Rule,
)
from duly.model.identifiers import new_id
from duly.policy import options
from duly.policy.flow_graph import arranged
from duly.policy.flow_rules import HANDLERS
from duly.registry import strict_json
from duly.registry.task import TaskDefinition
from duly.runtime.context import running

Choice = TypeVar("Choice", Rule, Condition, FailurePolicy)
Fill = Callable[[bytes], Prepared[Any]]
"""From encoded arguments to a job with the task's defaults and the options of `using`."""

_WHEN = {
    "finished": Rule.ALL_FINISHED,
    "failed": Rule.ANY_FAILED,
    "succeeded": Rule.ALL_SUCCEEDED,
}


class NodeSpec(msgspec.Struct):
    """A node in the making. `gets` are parameters that get results of other nodes, the whole list
    of them where a group was given; `each` is the parameter that gets the items of `source`."""

    node: Prepared[Any]
    name: str
    definition: TaskDefinition | None
    rule: Rule = Rule.ALL_SUCCEEDED
    at_end: bool = False
    gets: dict[str, Prepared[Any] | Group] = msgspec.field(default_factory=dict)
    each: str | None = None
    source: Prepared[Any] | str | None = None

    @property
    def id(self) -> UUID:
        """The node's id."""
        return self.node.draft.id


class Flow(Builder):
    """A flow in the making. Jobs made by `task.job(...)` inside its block are its nodes; nothing
    is stored before `submit`, and then all of it, in one transaction."""

    def __init__(
        self, client: Client, name: str, on_failure: FailurePolicy | str, max_active: int | None
    ) -> None:
        self.name = options.flow(name)
        self.policy = _choice("on_failure", on_failure, FailurePolicy)
        self.max_active = None if max_active is None else _positive(max_active)
        context = running.get()
        self.id = new_id() if context is None else context.next_flow_id(self.name)
        self._parent = None if context is None else context.job
        self._client = client
        self._specs: dict[UUID, NodeSpec] = {}
        self._edges: dict[tuple[UUID, UUID], Condition] = {}
        self._named: Counter[str] = Counter()
        self._checked: FlowDraft | None = None
        self._open: Token[Builder | None] | None = None

    def __enter__(self) -> Flow:
        if building.get() is not None:
            raise InvalidFlow(f"flow {self.name!r} is opened inside the block of another flow")
        self._open = building.set(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._open is not None:
            building.reset(self._open)
            self._open = None
        if kind is None:
            self.check()

    def check(self) -> None:
        """Refuse with InvalidFlow what cannot run: cycles, nodes of another flow, results that do
        not fit. The end of the block does so, too."""
        self._checked = self._draft()

    def submit(self, *, connection: object | None = None) -> FlowRun:
        """Store the whole flow, in one transaction; in the caller's, when there is one.

        Inside a task the flow belongs to its job: when that runs again after a crash, it finds
        the flow that it has submitted before.
        """
        store = self._client.store
        run = self._client.run if connection is None else store.carry(connection).run
        record, created = run(store.submit_flow(self._checked or self._draft()))
        return FlowRun(record, self._client, created)

    async def asubmit(self, *, connection: object | None = None) -> FlowRun:
        """Store the whole flow without blocking the event loop; see `submit`."""
        store = self._client.store
        arun = self._client.arun if connection is None else (await store.acarry(connection)).arun
        record, created = await arun(store.submit_flow(self._checked or self._draft()))
        return FlowRun(record, self._client, created)

    def at_end(self, node: Prepared[Any], when: str = "finished") -> Prepared[Any]:
        """Run this node last, when all others have "finished", or only when the flow has "failed"
        or "succeeded"."""
        if when not in _WHEN:
            raise InvalidOption("when", f"must be one of {', '.join(_WHEN)}; got {when!r}")
        spec = self._spec(node)
        spec.rule, spec.at_end = _WHEN[when], True
        return node

    def name_node(self, node: Prepared[Any], name: str) -> None:
        """See Builder."""
        self._spec(node).name = options.node(name)

    def set_rule(self, node: Prepared[Any], rule: Rule | str) -> None:
        """See Builder."""
        self._spec(node).rule = _choice("when", rule, Rule)

    def link(
        self,
        parents: Sequence[Prepared[Any]],
        children: Sequence[Prepared[Any]],
        on: Condition | str = Condition.SUCCEEDED,
    ) -> None:
        """See Builder."""
        condition = _choice("on", on, Condition)
        for parent in parents:
            for child in children:
                self._edges[self._spec(parent).id, self._spec(child).id] = condition

    def add(
        self,
        definition: TaskDefinition,
        fill: Fill,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Prepared[Any]:
        """See Builder."""
        arguments = definition.arguments.bind(args, kwargs)
        gets = {name: _references(name, value) for name, value in arguments.items()}
        found = {name: given for name, given in gets.items() if given is not None}
        mapped = {name: value for name, value in arguments.items() if isinstance(value, Each)}
        if len(mapped) > 1:
            raise InvalidFlow(
                f"task {definition.name!r}: each(...) is given for {' and '.join(mapped)}; a node "
                "runs once for each item of one list"
            )
        provided = frozenset(found) | frozenset(mapped)
        for name in provided:
            if definition.arguments.declared(name) is None:
                raise InvalidFlow(
                    f"task {definition.name!r}: a result can only be passed to a parameter with a "
                    f"name of its own; {name!r} is not such a one"
                )
        encoded = definition.arguments.encode_rest(arguments, provided)
        node = self.add_encoded(fill(encoded))
        spec = self._specs[node.draft.id]
        spec.definition, spec.gets = definition, found
        for given in found.values():
            self._follow(spec, given)
        for name, item in mapped.items():
            spec.each, spec.source = name, self._source(definition, name, item.source)
            if isinstance(spec.source, Prepared):
                self._follow(spec, spec.source)
        return node

    def add_encoded(self, prepared: Prepared[Any]) -> Prepared[Any]:
        """See Builder."""
        task = prepared.template.task
        if prepared.template.key is not None:
            raise InvalidFlow(f"task {task!r}: a node has no key of its own; leave out key=")
        template = msgspec.structs.replace(prepared.template, flow_id=self.id)
        node: Prepared[Any] = Prepared(template, prepared.arguments, prepared.decode)
        self._checked = None
        self._named[task] += 1
        number = self._named[task]
        name = task if number == 1 else f"{task}:{number}"
        self._specs[node.draft.id] = NodeSpec(node, name, None)
        return node

    def _spec(self, node: Prepared[Any]) -> NodeSpec:
        self._checked = None
        spec = self._specs.get(node.draft.id)
        if spec is None:
            where = "another flow" if node.draft.flow_id is not None else "no flow"
            raise InvalidFlow(
                f"the job of task {node.draft.task!r} is a node of {where}, not of {self.name!r}: "
                "make it inside this flow's block"
            )
        return spec

    def _follow(self, spec: NodeSpec, given: Prepared[Any] | Group) -> None:
        parents = list(given) if isinstance(given, Group) else [given]
        for parent in parents:
            self._edges.setdefault((self._spec(parent).id, spec.id), Condition.SUCCEEDED)

    def _source(
        self, definition: TaskDefinition, parameter: str, source: Any
    ) -> Prepared[Any] | str:
        if isinstance(source, Prepared):
            return source
        if isinstance(source, str | bytes | Mapping) or not isinstance(source, Sequence):
            raise InvalidFlow(
                f"task {definition.name!r}, argument {parameter!r}: each(...) takes a node that "
                f"returns a list, or a list; got {type(source).__name__}"
            )
        others = frozenset(definition.arguments.names - {parameter})
        items = [
            msgspec.json.decode(
                definition.arguments.encode_rest({parameter: item}, others),
                type=dict[str, msgspec.Raw],
            )[parameter]
            for item in source
        ]
        encoded = msgspec.json.encode(items)
        limit = self._client.config.payload_limit
        strict_json.check_size(encoded, f"the items of task {definition.name!r}", limit)
        return encoded.decode()

    def _draft(self) -> FlowDraft:
        edges = self._edges | self._last_edges()
        kept = {
            node.draft.id
            for spec in self._specs.values()
            for given in (*spec.gets.values(), spec.source)
            if isinstance(given, Prepared | Group)
            for node in (given if isinstance(given, Group) else [given])
        }
        check_results(self._specs, edges)
        linked = [Edge(parent, child, on) for (parent, child), on in edges.items()]
        nodes = arranged(
            [
                self._node(spec, number, spec.id in kept)
                for number, spec in enumerate(self._specs.values())
            ],
            linked,
        )
        parent = self._parent
        return FlowDraft(
            id=self.id,
            name=self.name,
            policy=self.policy,
            max_active=self.max_active,
            parent_id=None if parent is None else parent.id,
            schedule_id=None if parent is None else parent.schedule_id,
            nodes=tuple(nodes),
            drafts=tuple(spec.node.draft for spec in self._specs.values() if spec.each is None),
            edges=tuple(linked),
        )

    def _last_edges(self) -> dict[tuple[UUID, UUID], Condition]:
        """From the nodes that nothing follows to those of `at_end`."""
        parents = {parent for parent, _ in self._edges}
        leaves = [
            spec for spec in self._specs.values() if spec.id not in parents and not spec.at_end
        ]
        return {
            (leaf.id, last.id): Condition.SUCCEEDED
            for last in self._specs.values()
            if last.at_end
            for leaf in leaves
            if last.rule is Rule.ALL_FINISHED or leaf.rule not in HANDLERS
        }

    def _node(self, spec: NodeSpec, number: int, kept: bool) -> FlowNode:
        draft = spec.node.draft
        bindings = [
            Binding(name, tuple(node.draft.id for node in given), True)
            if isinstance(given, Group)
            else Binding(name, (given.draft.id,))
            for name, given in spec.gets.items()
        ]
        expansion = None
        if spec.each is not None:
            source = spec.source
            over = source.draft.id if isinstance(source, Prepared) else None
            values = source if isinstance(source, str) else None
            made = Expansion(draft=draft, parameter=spec.each, over=over, values=values)
            expansion = msgspec.json.encode(made).decode()
        return FlowNode(
            id=draft.id,
            flow_id=self.id,
            number=number,
            name=spec.name,
            kind=NodeKind.JOB if spec.each is None else NodeKind.MAP,
            rule=spec.rule,
            kept=kept,
            delay=None if draft.delay is None else draft.delay.total_seconds(),
            bindings=msgspec.json.encode(bindings).decode() if bindings else None,
            expansion=expansion,
        )


def _references(name: str, value: Any) -> Prepared[Any] | Group | None:
    """The node or nodes whose result an argument is; None for a plain value."""
    if isinstance(value, Prepared | Group):
        return value
    if isinstance(value, list | tuple) and any(isinstance(each, Prepared) for each in value):
        if all(isinstance(each, Prepared) for each in value):
            return Group(value)
        raise InvalidFlow(
            f"argument {name!r} mixes nodes with plain values: give a list of nodes only"
        )
    return None


def _choice(option: str, value: Choice | str, kind: type[Choice]) -> Choice:
    try:
        return kind(value)
    except ValueError:
        known = "', '".join(each.value for each in kind)
        raise InvalidOption(option, f"must be one of '{known}'; got {value!r}") from None


def _positive(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidOption("max_active", f"must be a whole number from 1; got {value!r}")
    return value
